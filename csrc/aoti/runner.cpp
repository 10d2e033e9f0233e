// AOTInductor's packages (.pt2) on `ocl`, in Python and in C++ programs.
#include <c10/core/Device.h>
#include <c10/util/Exception.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner.h>

#include "runtime/device_guard.h"
#include "runtime/stream.h"

namespace {

using torch::inductor::AOTIModelContainerRunner;

/// See aoti/model.h for the device's name.
std::string name_for_models(c10::DeviceIndex index) { return "mps:" + std::to_string(index); }

class Runner final : public AOTIModelContainerRunner {
 public:
  Runner(const std::string& library, size_t models, c10::DeviceIndex index,
         const std::string& folder, bool single_threaded)
      : AOTIModelContainerRunner(library, models, name_for_models(index), folder, single_threaded) {
  }
};

std::unique_ptr<AOTIModelContainerRunner> make_runner(const std::string& library, size_t models,
                                                      const std::string& device,
                                                      const std::string& folder,
                                                      bool single_threaded) {
  const c10::Device named(device);
  const c10::DeviceIndex index = named.has_index() ? named.index() : ocl::current_device();
  // Constants come to lie on the current device.
  const ocl::DeviceGuard guard(c10::Device(ocl::kDeviceType, index));
  return std::make_unique<Runner>(library, models, index, folder, single_threaded);
}

const bool registered = [] {
  // Python gives the device its name; a program without Python has nobody who does.
  if (c10::get_privateuse1_backend() == "privateuseone") c10::register_privateuse1_backend("ocl");
  torch::inductor::RegisterAOTIModelRunner("ocl", &make_runner);
  return true;
}();

}  // namespace
