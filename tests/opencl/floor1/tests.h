// The tests by name; main.cpp runs them. Each throws what it finds wrong.
#pragma once

#include <string>

#include "opencl/device.h"

namespace floor1 {

// Without a device.
void test_errors();
void test_address_space();
void test_address_space_where_it_is_limited();
void test_sources();
void test_driver_text();
void test_registry();
void test_build_log();
void test_retarget();
void test_selectors();
void test_variables();
void test_unavailable();

// On each device.
void test_copies(ocl::Device& device);
void test_kernels(ocl::Device& device);
void test_epoch(ocl::Device& device);
void test_failures(ocl::Device& device);
void test_from_source(ocl::Device& device);
void test_features(ocl::Device& device);
void test_rounding(ocl::Device& device);
void test_asserts(ocl::Device& device);
void test_events(ocl::Device& device);
void test_threads(ocl::Device& device);
void test_forked_child(ocl::Device& device);
void test_disk_cache(ocl::Device& device);
void test_cache_trust(ocl::Device& device);
void test_cache_size(ocl::Device& device);
void test_verbose(ocl::Device& device);
void test_exit(ocl::Device& device);

/// The program run by child(): tests of what a process reads once, or how it ends.
int run_child(const std::string& name);
/// Prints µs per launch and ns per lookup.
void benchmark(ocl::Device& device);

}  // namespace floor1
