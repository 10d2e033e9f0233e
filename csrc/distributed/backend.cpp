#include "distributed/backend.h"

#include <pybind11/pybind11.h>

namespace ocl::distributed {

Backend::Backend(std::unique_ptr<Transport> transport)
    : Base(transport->inner()->getRank(), transport->inner()->getSize()),
      transport_(std::move(transport)) {
  init();
}

// Threads end here that may have to call Python first.
Backend::~Backend() {
  std::optional<pybind11::gil_scoped_release> released;
  if (Py_IsInitialized() && PyGILState_Check()) released.emplace();
  transport_.reset();
}

void Backend::setGroupUid(const std::string& uid) {
  Base::setGroupUid(uid);
  inner()->setGroupUid(uid);
}

// One backend serves the CPU's tensors, too, so upstream asks twice for a new group: the second
// time it gets the same.
Backend::Ptr Backend::split(const c10::intrusive_ptr<c10d::Store>& store,
                            const std::vector<int>& ranks,
                            const c10::intrusive_ptr<Base::Options>& opts) {
  if (Ptr same = last_split_.lock(); same && opts && same->getGroupUid() == opts->group_name) {
    return same;
  }
  auto transport = transport_->split(store, ranks, opts);
  if (!transport) return {};
  Ptr made = c10::make_intrusive<Backend>(std::move(transport));
  made->setGroupUid((opts ? opts : inner()->getBackendOptions())->group_name);
  last_split_ = c10::weak_intrusive_ptr<Base>(made);
  return made;
}

void Backend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  transport_->drain();
  inner()->monitoredBarrier(opts, wait_all_ranks);
}

}  // namespace ocl::distributed
