// An OpenCL loader whose calls fail as a plan says, for TORCH_OCL_LOADER. It forwards every entry
// point that the package loads to the real loader, which this library is linked to.
// plan.h says what a plan is.
#include <dlfcn.h>
#include <errno.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <tuple>

#include "plan.h"

// Asked for where they are used alone, not by the package's table.
#define FAULTS_OTHER_FUNCTIONS(X) \
  X(clCreateBufferWithProperties) \
  X(clCreateSubDevices)

#define FAULTS_ALL_FUNCTIONS(X) \
  OCL_REQUIRED_FUNCTIONS(X)     \
  OCL_OPTIONAL_FUNCTIONS(X)     \
  FAULTS_OTHER_FUNCTIONS(X)

namespace faults {
namespace {

struct Callback {
  void(CL_CALLBACK* function)(cl_event, cl_int, void*);
  void* data;
  static void CL_CALLBACK call(cl_event event, cl_int status, void* self) {
    const auto* callback = static_cast<Callback*>(self);
    callback->function(event, status_of(event, status), callback->data);
    delete callback;
  }
};

template <size_t N>
struct Name {
  constexpr Name(const char (&text)[N]) { std::copy_n(text, N, this->text); }
  char text[N] = {};
};

/// Real functions that come from a driver, not from the loader.
template <Name name>
void* of_platform = nullptr;

template <Name name, class Function>
struct Entry;

template <Name name, class R, class... A>
struct Entry<name, R(CL_API_CALL*)(A...)> {
  using Function = R(CL_API_CALL*)(A...);
  using Arguments = std::tuple<A...>;
  using First = std::tuple_element_t<0, Arguments>;
  using Last = std::tuple_element_t<sizeof...(A) - 1, Arguments>;
  static constexpr std::string_view kName = name.text;
  static constexpr bool kAsks = [] {
    if constexpr (sizeof...(A) < 5)
      return false;
    else
      return asks(kName) &&
             std::is_same_v<std::tuple_element_t<sizeof...(A) - 4, Arguments>, cl_uint>;
  }();
  static constexpr bool kGivesEvent = std::is_same_v<Last, cl_event*>;

  static Function real() {
    if (of_platform<name> != nullptr) return reinterpret_cast<Function>(of_platform<name>);
    static const auto found = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name.text));
    return found;
  }

  static cl_uint question(const Arguments& arguments) {
    if constexpr (kAsks) return std::get<sizeof...(A) - 4>(arguments);
    return 0;
  }

  static R failed(cl_int code, Arguments& arguments) {
    if constexpr (std::is_same_v<R, cl_int>) {
      return code;
    } else {
      if constexpr (std::is_same_v<Last, cl_int*>) {
        if (Last at = std::get<sizeof...(A) - 1>(arguments)) *at = code;
      }
      return nullptr;
    }
  }

  /// Whether a call worked.
  static bool worked(R result) {
    if constexpr (std::is_same_v<R, cl_int>) return result == CL_SUCCESS;
    return result != R{};
  }

  static R make(Arguments& arguments) {
    if constexpr (kName == "clSetEventCallback") {
      auto& [event, type, function, data] = arguments;
      auto* callback = new Callback{function, data};  // leaked where the driver refuses it
      return real()(event, type, &Callback::call, callback);
    }
    if constexpr (kName == "clWaitForEvents") {
      const auto& [count, events] = arguments;
      cl_int result = real()(count, events);
      for (cl_uint i = 0; i < count; ++i) {
        while (result == CL_SUCCESS && status_of(events[i], CL_COMPLETE) > CL_COMPLETE) {
          std::this_thread::sleep_for(Milliseconds(1));
        }
        if (status_of(events[i], CL_COMPLETE) < 0) {
          result = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
        }
      }
      return result;
    }
    if constexpr (kName == "clGetExtensionFunctionAddressForPlatform") {
      return extension(arguments);
    }
    R result = std::apply(real(), arguments);
    if constexpr (kName == "clGetEventInfo") {
      const auto& [event, what, size, value, needed] = arguments;
      if (what == CL_EVENT_COMMAND_EXECUTION_STATUS && worked(result) && value != nullptr) {
        auto* status = static_cast<cl_int*>(value);
        *status = status_of(event, *status);
      }
    }
    return result;
  }

  static R extension(Arguments& arguments);

  static void answer(const Fault& fault, Arguments& arguments) {
    if constexpr (kAsks) {
      const size_t size = std::get<sizeof...(A) - 3>(arguments);
      void* value = std::get<sizeof...(A) - 2>(arguments);
      size_t* needed = std::get<sizeof...(A) - 1>(arguments);
      if (fault.how == How::empty && needed != nullptr) *needed = 0;
      if (value == nullptr || kName == "clGetProgramInfo") return;  // there are pointers
      if (fault.how == How::zeros) std::memset(value, 0, size);
      if (fault.how == How::ones) std::memset(value, 0xff, size);
    }
  }

  /// The answer that a plan has, in the place of the driver's.
  static R told(const Fault& fault, Arguments& arguments) {
    if constexpr (kAsks) {
      const auto number = static_cast<cl_ulong>(fault.number);
      const bool is_text = fault.how == How::text;
      const void* bytes = is_text ? static_cast<const void*>(fault.text.c_str()) : &number;
      const size_t most = is_text ? fault.text.size() + 1 : sizeof number;
      const size_t room = std::get<sizeof...(A) - 3>(arguments);
      void* value = std::get<sizeof...(A) - 2>(arguments);
      if (size_t* needed = std::get<sizeof...(A) - 1>(arguments)) *needed = most;
      if (value != nullptr) std::memcpy(value, bytes, std::min(room, most));
    }
    return R{};
  }

  static R call(A... values) {
    Arguments arguments(values...);
    const Fault fault = begin(name.text, question(arguments));
    constexpr bool releases = kName.starts_with("clRelease");
    // The program has let it go, whatever the driver says.
    if constexpr (releases) take_back(kind_of<First>(), std::get<0>(arguments), name.text);
    if (fault.how == How::before) return failed(fault.number, arguments);
    if (fault.how == How::number || fault.how == How::text) return told(fault, arguments);
    if (fault.how == How::delay) std::this_thread::sleep_for(Milliseconds(fault.number));
    cl_event* event = nullptr;
    cl_event own = nullptr;
    if constexpr (kGivesEvent) {
      event = std::get<sizeof...(A) - 1>(arguments);
      if (fault.how == How::after && event != nullptr) {
        std::get<sizeof...(A) - 1>(arguments) = &own;
      }
    }
    R result = make(arguments);
    if (fault.how == How::delay) std::this_thread::sleep_for(Milliseconds(fault.number));
    if (fault.how == How::after) {
      undo(result, own, arguments);
      return failed(fault.number, arguments);
    }
    if (!worked(result)) return result;
    answer(fault, arguments);
    if constexpr (kind_of<R>() != nullptr) give_out(kind_of<R>(), result, name.text);
    if constexpr (kName.starts_with("clRetain")) {
      give_out(kind_of<First>(), std::get<0>(arguments), name.text);
    }
    if (event != nullptr) {
      give_out("cl_event", *event, name.text);
      if (fault.how == How::event || fault.how == How::late) lie(*event, fault);
    }
    return result;
  }

  /// Releases what a call made that says it has failed: it is not the program's.
  static void undo(R result, cl_event event, const Arguments& arguments);
};

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

template <Name name, class R, class... A>
void Entry<name, R(CL_API_CALL*)(A...)>::undo(R result, cl_event event,
                                              const Arguments& arguments) {
  static_cast<void>(result), static_cast<void>(arguments);
  if (event != nullptr) next<decltype(&clReleaseEvent)>("clReleaseEvent")(event);
  if constexpr (std::is_same_v<R, cl_context>)
    next<decltype(&clReleaseContext)>("clReleaseContext")(result);
  if constexpr (std::is_same_v<R, cl_command_queue>)
    next<decltype(&clReleaseCommandQueue)>("clReleaseCommandQueue")(result);
  if constexpr (std::is_same_v<R, cl_mem>)
    next<decltype(&clReleaseMemObject)>("clReleaseMemObject")(result);
  if constexpr (std::is_same_v<R, cl_program>)
    next<decltype(&clReleaseProgram)>("clReleaseProgram")(result);
  if constexpr (std::is_same_v<R, cl_kernel>)
    next<decltype(&clReleaseKernel)>("clReleaseKernel")(result);
  if constexpr (std::is_same_v<R, cl_event>)
    next<decltype(&clReleaseEvent)>("clReleaseEvent")(result);
  if constexpr (kName == "clRetainMemObject")
    next<decltype(&clReleaseMemObject)>("clReleaseMemObject")(std::get<0>(arguments));
  if constexpr (kName == "clRetainEvent")
    next<decltype(&clReleaseEvent)>("clReleaseEvent")(std::get<0>(arguments));
  if constexpr (kName == "clRetainCommandQueue")
    next<decltype(&clReleaseCommandQueue)>("clReleaseCommandQueue")(std::get<0>(arguments));
}

// cl_khr_command_buffer's, which are a driver's own. CL/cl_ext.h has them in some versions only.
using CreateBuffer = CommandBuffer(CL_API_CALL*)(cl_uint, const cl_command_queue*, const cl_ulong*,
                                                 cl_int*);
using OfBuffer = cl_int(CL_API_CALL*)(CommandBuffer);
using EnqueueBuffer = cl_int(CL_API_CALL*)(cl_uint, cl_command_queue*, CommandBuffer, cl_uint,
                                           const cl_event*, cl_event*);
using AddKernel = cl_int(CL_API_CALL*)(CommandBuffer, cl_command_queue, const cl_ulong*, cl_kernel,
                                       cl_uint, const size_t*, const size_t*, const size_t*,
                                       cl_uint, const cl_uint*, cl_uint*, void*);

using Acquire = cl_int(CL_API_CALL*)(cl_command_queue, cl_uint, const cl_mem*, cl_uint,
                                     const cl_event*, cl_event*);

/// The function in the place of a driver's; null where it isn't known here.
template <Name name, class Function>
bool replace(const char* wanted, void*& found) {
  if (std::string_view(wanted) != name.text) return false;
  if (found != nullptr) {
    of_platform<name> = found;
    found = reinterpret_cast<void*>(&Entry<name, Function>::call);
  }
  return true;
}

template <Name name, class R, class... A>
R Entry<name, R(CL_API_CALL*)(A...)>::extension(Arguments& arguments) {
  if constexpr (std::is_same_v<R, void*>) {
    void* found = std::apply(real(), arguments);
    const char* wanted = std::get<1>(arguments);
    const bool known = replace<"clCreateCommandBufferKHR", CreateBuffer>(wanted, found) ||
                       replace<"clFinalizeCommandBufferKHR", OfBuffer>(wanted, found) ||
                       replace<"clReleaseCommandBufferKHR", OfBuffer>(wanted, found) ||
                       replace<"clEnqueueCommandBufferKHR", EnqueueBuffer>(wanted, found) ||
                       replace<"clCommandNDRangeKernelKHR", AddKernel>(wanted, found) ||
                       replace<"clEnqueueAcquireExternalMemObjectsKHR", Acquire>(wanted, found);
    if (!known) {
      State& all = state();
      const std::lock_guard lock(all.mutex);
      all.wrong.push_back(std::string(wanted) + " is unknown to the tests' loader");
    }
    return found;
  } else {
    return R{};
  }
}

const char* hand_out(const std::string& text) { return (state().text = text).c_str(); }

}  // namespace

extern "C" {

/// Makes a plan, and counts from 0 again. What was lost is there again.
__attribute__((visibility("default"))) void faults_plan(const char* text) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  all.faults.clear();
  all.counts.clear();
  all.questions.clear();
  all.struck = 0;
  all.lost = CL_SUCCESS;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) all.faults.push_back(fault_of(line));
  }
}

/// How often a fault has struck since then.
__attribute__((visibility("default"))) uint64_t faults_struck() {
  const std::lock_guard lock(state().mutex);
  return state().struck;
}

/// The calls since then: a line each, with their number and what was asked.
__attribute__((visibility("default"))) const char* faults_calls() {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  std::ostringstream text;
  for (const auto& [name, count] : all.counts) {
    text << name << ' ' << count;
    for (const cl_uint what : all.questions[name]) text << ' ' << what;
    text << '\n';
  }
  return hand_out(text.str());
}

/// The objects that the program holds: a line each, with the call that gave it out.
__attribute__((visibility("default"))) const char* faults_objects() {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  std::ostringstream text;
  for (const auto& [handle, object] : all.objects) {
    text << handle << ' ' << object.kind << ' ' << object.references << ' ' << object.by << '\n';
  }
  return hand_out(text.str());
}

/// The uses that no program may make, since the last question: a line each.
__attribute__((visibility("default"))) const char* faults_wrong() {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  std::string text;
  for (const std::string& line : all.wrong) text += line + "\n";
  all.wrong.clear();
  return hand_out(text);
}

__attribute__((constructor)) void faults_start() {
  const char* plan = std::getenv("FAULTS_PLAN");
  const char* program = std::getenv("FAULTS_IN");
  if (plan == nullptr) return;
  if (program != nullptr && std::strstr(program_invocation_short_name, program) == nullptr) return;
  faults_plan(plan);
}

#ifdef FAULTS_READS_ICD_FILENAMES
// The package looks for that word in the loader's file.
__attribute__((used)) const char faults_word[] = "OCL_ICD_FILENAMES";
#endif

#define FAULTS_EXPORT(name)                                                 \
  __attribute__((visibility("hidden"))) void* faults_resolve_##name() {     \
    return reinterpret_cast<void*>(&Entry<#name, decltype(&::name)>::call); \
  }                                                                         \
  __attribute__((visibility("default"), ifunc("faults_resolve_" #name))) decltype(::name) name;
FAULTS_ALL_FUNCTIONS(FAULTS_EXPORT)
}  // extern "C"

}  // namespace faults
