// The pybind11 module torch_ocl._distributed, which torch_ocl/distributed.py loads with the first
// process group that has a backend for `ocl`.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include "distributed/backend.h"
#include "distributed/shared.h"
#include "distributed/staged.h"

namespace {

/// The part of a group that dist.split_group copies for a new one.
struct Options final : c10d::Backend::Options {
  using Base = c10d::Backend::Options;
  explicit Options(const Base& base) : Base(base.backend, base.timeout) {
    group_name = base.group_name;
    global_ranks_in_group = base.global_ranks_in_group;
  }
};

pybind11::object counts_of(const ocl::distributed::Backend& backend) {
  const auto counts = backend.shared_memory();
  if (!counts) return pybind11::none();
  pybind11::dict found;
  found["made"] = counts->made;
  found["in_use"] = counts->in_use;
  found["in_use_bytes"] = counts->in_use_bytes;
  found["kept"] = counts->kept;
  found["kept_bytes"] = counts->kept_bytes;
  return found;
}

/// `with` is "cuda" or "host": whose memory is shared.
c10::intrusive_ptr<c10d::Backend> share(const c10::intrusive_ptr<c10d::Backend>& inner,
                                        const std::string& with, size_t kept) {
  namespace d = ocl::distributed;
  TORCH_CHECK(with == "cuda" || with == "host", "no memory of \"", with, "\" to share");
  auto memory = with == "cuda" ? d::cuda_memory() : d::host_memory();
  auto pool = std::make_shared<d::BlockPool>(std::move(memory), kept);
  return c10::make_intrusive<d::Backend>(std::make_unique<d::Shared>(inner, std::move(pool)));
}

}  // namespace

PYBIND11_MODULE(_distributed, module) {
  namespace py = pybind11;
  using ocl::distributed::Backend;
  module.doc() = "Process groups for ocl tensors; use torch.distributed instead.";
  // The inner backend's class and the store's are torch's.
  py::module_::import("torch._C._distributed_c10d");
  py::class_<Options, c10d::Backend::Options, c10::intrusive_ptr<Options>>(
      module, "Options", "A group's timeout, name and ranks; copy.deepcopy copies them.")
      .def("__deepcopy__",
           [](const Options& self, const py::dict&) { return c10::make_intrusive<Options>(self); });
  py::class_<Backend, c10d::Backend, c10::intrusive_ptr<Backend>>(
      module, "Backend", "Takes tensors on ocl and on the CPU; wrap() makes it.")
      .def("_set_default_timeout", &Backend::setTimeout, "Of the calls from now on.")
      .def_property_readonly("calls", &Backend::calls, "How many calls it has made.")
      .def_property_readonly("shared_memory", &counts_of,
                             "Counts of the blocks of shared memory; None without such.")
      .def_property_readonly("options", [](Backend& self) {
        return c10::make_intrusive<Options>(*self.getBackendOptions());
      });
  module.attr("USUAL_CHUNK") = ocl::distributed::Staged::kUsualChunk;
  module.def(
      "wrap",
      [](const c10::intrusive_ptr<c10d::Backend>& inner,
         const c10::intrusive_ptr<c10d::Store>& store,
         int64_t chunk) -> c10::intrusive_ptr<c10d::Backend> {
        return c10::make_intrusive<Backend>(
            std::make_unique<ocl::distributed::Staged>(inner, store, chunk));
      },
      py::arg("inner"), py::arg("store"), py::arg("chunk"),
      py::call_guard<py::gil_scoped_release>());
  module.def("share", &share, py::arg("inner"), py::arg("memory"), py::arg("kept"),
             py::call_guard<py::gil_scoped_release>());
}
