// Order and concurrency: device-side checks, events, threads, forks, and the end of the process.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <latch>
#include <mutex>
#include <set>
#include <thread>

#include "harness.h"
#include "kernels.h"
#include "opencl/device_assert.h"
#include "opencl/program.h"
#include "tests.h"
#include "opencl/event.h"
#include "opencl/platform.h"

namespace floor1 {

void test_asserts(Device& device) {
  static const AssertSite first_site("index_select");
  static const AssertSite second_site("gather");
  REQUIRE(first_site.id() != 0 && first_site.id() != second_site.id());
  Queue queue(device), unrelated(device);
  Memory memory(device, 4096);
  const auto run_on = [&](Queue& queue, const AssertSite& site, std::vector<int64_t> index) {
    queue.write(memory.at(), index.data(), index.size() * 8, true);
    launch(checked_kernel.get(device, {}), queue, NDRange::linear(index.size(), 1),
           Pointer{memory.at()}, cl_long{10}, device.asserts().mem(), site.id(),
           Pointer{memory.at(2048)});
  };
  const auto run = [&](const AssertSite& site, std::vector<int64_t> index) {
    run_on(queue, site, std::move(index));
  };
  run(first_site, {0, 9, -10, -1});
  queue.finish();
  REQUIRE(!queue.take_assertion());
  REQUIRE(read_ints(queue, memory.at(2048), 4) == (std::vector<int>{0, 9, 0, 9}));
  run(second_site, {0, 11, 2, 3});
  REQUIRE(!unrelated.take_assertion());
  queue.finish();
  REQUIRE(!unrelated.take_assertion());
  const auto failure = queue.take_assertion();
  REQUIRE(failure && failure->op == "gather" && failure->index == 11 && failure->size == 10);
  REQUIRE(!queue.take_assertion());
  run(first_site, {-11});  // the memo skips the argument, the check is noticed all the same
  queue.finish();
  REQUIRE(queue.take_assertion()->index == -11);
  // Another queue's kernels have a record of their own, which who waits for them reads too.
  run_on(unrelated, first_site, {12});
  Event event;
  event.record(unrelated);
  queue.finish();
  REQUIRE(!queue.take_assertion());
  event.block(queue);
  queue.finish();
  REQUIRE(queue.take_assertion()->index == 12);
  REQUIRE(!queue.take_assertion() && !unrelated.take_assertion());
}

void test_events(Device& device) {
  Queue queue(device), second(device, -1);
  Memory memory(device, 4096);
  REQUIRE(queue.idle());
  Event nothing;
  REQUIRE(nothing.query() && !nothing.recorded());
  nothing.synchronize();
  nothing.block(queue);
  Kernel& slow = slow_kernel.get(device, {});
  launch(slow, queue, NDRange::linear(1, 1), Pointer{memory.at()}, 1);
  queue.finish();
  Event start, end, plain;
  start.record(queue, true);
  launch(slow, queue, NDRange::linear(1, 1), Pointer{memory.at()}, 1 << 20);
  end.record(queue, true);
  plain.record(queue);
  REQUIRE(!queue.idle() && !end.query());
  end.block(second);
  launch(fill_kernel.get(device, {}), second, NDRange::linear(4, 4), Pointer{memory.at()}, 4, 3);
  REQUIRE(read_ints(second, memory.at(), 1)[0] == 13);  // after slow, which writes there too
  end.synchronize();
  start.synchronize();
  REQUIRE(end.query() && plain.query());
  const double ms = Event::elapsed_ms(start, end);
  REQUIRE(ms > 1 && ms < 10000);
  REQUIRE_CONTAINS(message_of([&] { Event::elapsed_ms(start, plain); }), "timing");
  int polls = 0;
  while (!queue.idle() && ++polls < 1000000) std::this_thread::yield();
  REQUIRE(queue.idle());
  if (device_count() > 1) {  // across contexts
    Queue foreign(ocl::device(device.index() == 0 ? 1 : 0));
    end.block(foreign);
  }
}

void test_threads(Device& device) {
  Memory memory(device, 8 * 4096);
  std::atomic<int> wrong{0};
  std::set<Kernel*> first, second;
  std::mutex mutex;
  const auto work = [&](size_t t, std::set<Kernel*>& used, std::latch& all_done) {
    try {
      Queue queue(device);
      char* mine = memory.at(t * 4096);
      for (int i = 0; i < 50; ++i) {
        const int add = i % 4;
        Kernel& kernel = fill_kernel.get(device, {{"ADD", add}});
        {
          std::lock_guard<std::mutex> lock(mutex);
          used.insert(&kernel);
        }
        launch(kernel, queue, NDRange::linear(1000, 64), Pointer{mine}, 1000, static_cast<int>(t));
        if (read_ints(queue, mine, 1000)[999] != 2 * static_cast<int>(t) + 7 + add + 999) ++wrong;
      }
    } catch (const std::exception& error) {
      std::printf("     %s\n", error.what());
      ++wrong;
    }
    all_done.arrive_and_wait();  // a thread that ended early would give its kernels to the others
  };
  const uint64_t before = program_stats().built + program_stats().loaded;
  for (auto* used : {&first, &second}) {
    std::latch all_done(8);
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 8; ++t)
      threads.emplace_back(work, t, std::ref(*used), std::ref(all_done));
    for (std::thread& thread : threads) thread.join();
  }
  REQUIRE(wrong == 0);
  REQUIRE(program_stats().built + program_stats().loaded == before + 4);  // not once per thread
  REQUIRE(first.size() == 32);
  REQUIRE(std::includes(first.begin(), first.end(), second.begin(), second.end()));  // reused
}

void test_forked_child(Device& device) {
  Queue queue(device);
  Memory memory(device, 4096);
  Kernel& kernel = fill_kernel.get(device, {});
  launch(kernel, queue, NDRange::linear(4, 4), Pointer{memory.at()}, 4, 3);
  queue.finish();
  const int devices = device_count();
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(20);
    int code = 0;
    if (device_count() != devices || !process_was_forked()) code = 2;
    if (!contains(unavailable_reason(), "spawn")) code = 3;
    if (!contains(message_of([] { ocl::device(0); }), "spawn")) code = 4;
    if (!contains(message_of([&] { queue.finish(); }), "spawn")) code = 5;
    if (!contains(message_of([&] { kernel.enqueue(queue, NDRange{}); }), "spawn")) code = 6;
    if (!contains(message_of([&] { queue.read(&code, memory.at(), 4, true); }), "spawn")) code = 7;
    {
      Queue* leaked = &queue;
      (void)leaked;
      Event event;
    }
    exit(code);  // with destructors, as an interpreter leaves
  }
  int status = 0;
  waitpid(pid, &status, 0);
  REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  launch(kernel, queue, NDRange::linear(4, 4), Pointer{memory.at()}, 4, 4);  // the parent goes on
  REQUIRE(read_ints(queue, memory.at(), 1)[0] == 15);
}

void test_exit(Device& device) {
  // Leaving with work under way, from main and with a thread alive, must not crash.
  for (const char* name : {"exit_pending", "exit_thread"}) {
    const Result result = child(name, "CHILD_DEVICE=" + index_text(device));
    if (result.code != 0) std::printf("     %s: %s\n", name, result.output.c_str());
    REQUIRE(result.code == 0);
  }
}

}  // namespace floor1
