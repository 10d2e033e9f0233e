// AOTInductor's packages (.pt2) on `ocl`, in Python and in C++ programs.
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner.h>

#include <deque>
#include <map>
#include <mutex>

#include "runtime/device_guard.h"
#include "runtime/stream.h"

namespace {

using torch::inductor::AOTIModelContainerRunner;

/// See aoti/model.h for the device's name.
std::string name_for_models(c10::DeviceIndex index) { return "mps:" + std::to_string(index); }

using Update = decltype(&AOTInductorModelContainerUpdateConstantBuffer);

/// torch updates a model's constants by its handle alone.
struct Loaded {
  c10::DeviceIndex index;
  Update update;
};
struct LoadedModels {
  std::mutex mutex;
  std::map<AOTInductorModelContainerHandle, Loaded> by_handle;
};
LoadedModels& loaded_models() {
  static auto* instance = new LoadedModels;
  return *instance;
}

/// A constant as a model copies it: all of its storage, on the model's device.
at::Tensor to_copy(const at::Tensor& given, c10::DeviceIndex index) {
  const at::Tensor moved = given.to(c10::Device(ocl::kDeviceType, index));
  const bool is_whole = moved.storage_offset() == 0 &&
                        moved.storage().nbytes() == static_cast<size_t>(moved.nbytes());
  return is_whole ? moved : moved.clone();
}

template <bool kFromHost>
AOTIRuntimeError update_constants(AOTInductorModelContainerHandle handle,
                                  AOTInductorConstantMapHandle given, bool inactive, bool all) {
  Loaded model;
  {
    LoadedModels& models = loaded_models();
    const std::lock_guard<std::mutex> lock(models.mutex);
    model = models.by_handle.at(handle);
  }
  const ocl::DeviceGuard guard(c10::Device(ocl::kDeviceType, model.index));
  const auto& constants = *reinterpret_cast<torch::inductor::TensorConstantMap*>(given);
  std::deque<at::Tensor> copies;
  torch::inductor::TensorConstantMap passed;
  for (const auto& [name, tensor] : constants) {
    const bool on_device = tensor->device().type() == ocl::kDeviceType;
    if (on_device || kFromHost) {
      passed[name] = &copies.emplace_back(to_copy(*tensor, model.index));
    } else {
      passed[name] = tensor;  // a constant on the CPU, or an error
    }
  }
  return model.update(handle, reinterpret_cast<AOTInductorConstantMapHandle>(&passed), inactive,
                      all);
}

class Runner final : public AOTIModelContainerRunner {
 public:
  Runner(const std::string& library, size_t models, c10::DeviceIndex index,
         const std::string& folder, bool single_threaded)
      : AOTIModelContainerRunner(library, models, name_for_models(index), folder, single_threaded) {
    LoadedModels& loaded = loaded_models();
    const std::lock_guard<std::mutex> lock(loaded.mutex);
    loaded.by_handle[container_handle_] = {index, update_constant_buffer_func_};
    update_constant_buffer_func_ = &update_constants<false>;
    // PyTorch 2.11 has none.
    [](auto& self) {
      if constexpr (requires { self.update_constant_buffer_from_cpu_func_; }) {
        self.update_constant_buffer_from_cpu_func_ = &update_constants<true>;
      }
    }(*this);
  }
  ~Runner() override {
    LoadedModels& loaded = loaded_models();
    const std::lock_guard<std::mutex> lock(loaded.mutex);
    loaded.by_handle.erase(container_handle_);
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
