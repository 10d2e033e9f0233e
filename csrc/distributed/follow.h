// Functions that run after a call of the inner backend.
#pragma once

#include <exception>
#include <functional>

#include "distributed/work.h"

namespace ocl::distributed {

/// Calls `arrived` once the inner work has ended well, and `failed` otherwise or if that throws, on
/// whatever thread but a CallQueue's: both may run the program's callbacks, which may make further
/// calls and wait for them.
void follow(const WorkPtr& inner, std::function<void()> arrived,
            std::function<void(std::exception_ptr)> failed);

/// Follows a work that has ended well in the same way.
void conclude(std::function<void()> arrived, std::function<void(std::exception_ptr)> failed);

/// Says that the calling thread is a CallQueue's.
void this_thread_makes_calls();

}  // namespace ocl::distributed
