// The cache of built programs on disk.
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <iterator>
#include <thread>

#include "harness.h"
#include "tests.h"

namespace floor1 {

void test_disk_cache(Device& device) {
  const std::string cache = work_folder + "/cache" + index_text(device);
  const std::string environment = "TORCH_OCL_CACHE=1 TORCH_OCL_CACHE_DIR=" + cache +
                                  " CHILD_DEVICE=" + index_text(device) +
                                  " POCL_CACHE_DIR=" + cache + "-pocl";
  const auto run = [&](const char* expected) {
    const Result result = child("build", environment);
    REQUIRE_CONTAINS(result.output, expected);
    REQUIRE(result.code == 0);
  };
  run("built 1 loaded 0");
  run("built 0 loaded 1");
  REQUIRE(std::distance(fs::directory_iterator(cache), {}) == 1);
  const std::string path = fs::directory_iterator(cache)->path();
  const std::string good = read_file(path);
  std::string flipped = good;
  flipped[good.size() * 3 / 4] ^= 1;
  std::string renamed = good;  // intact, but of another key
  const size_t at = good.find("driver: ");
  REQUIRE(at != std::string::npos);
  renamed[at + 8] ^= 1;
  for (const std::string& bad : {good.substr(0, good.size() / 2), flipped, renamed,
                                 std::string("junk"), std::string(), std::string(5000, 'x')}) {
    write_file(path, bad);
    run("built 1 loaded 0");
    run("built 0 loaded 1");
  }
  REQUIRE_CONTAINS(child("build", environment + " TORCH_OCL_CACHE=0").output, "built 1 loaded 0");
  // A folder that others can write to: nothing of it is run, with one warning.
  fs::permissions(cache, fs::perms::others_write, fs::perm_options::add);
  const Result open = child("build", environment);
  REQUIRE_CONTAINS(open.output, "built 1 loaded 0");
  const size_t refusal = open.output.find("is not used");
  REQUIRE(open.code == 0 && refusal != std::string::npos);
  REQUIRE(open.output.find("is not used", refusal + 1) == std::string::npos);
  fs::permissions(cache, fs::perms::others_write, fs::perm_options::remove);
  run("built 0 loaded 1");
  // A folder that can't be made: one warning, and the kernels run.
  write_file(work_folder + "/plain_file", "");
  const Result result =
      child("build", environment + " TORCH_OCL_CACHE_DIR=" + work_folder + "/plain_file/sub");
  REQUIRE_CONTAINS(result.output, "built 1 loaded 0");
  const size_t warning = result.output.find("can't be written");
  REQUIRE(result.code == 0 && warning != std::string::npos);
  REQUIRE(result.output.find("can't be written", warning + 1) == std::string::npos);
}

// Binaries are run as they are: what others could have put there is not.
void test_cache_trust(Device& device) {
  const std::string top = work_folder + "/trust" + index_text(device), cache = top + "/cache";
  const std::string environment = "TORCH_OCL_CACHE=1 TORCH_OCL_CACHE_DIR=" + cache +
                                  " CHILD_DEVICE=" + index_text(device) +
                                  " POCL_CACHE_DIR=" + top + "-pocl";
  const auto mode = [](const fs::path& path) {
    return static_cast<int>(fs::status(path).permissions()) & 0777;
  };
  // Folders with modes that the umask would have changed, those above too.
  for (const char* mask : {"0", geteuid() == 0 ? "0777" : "077"}) {
    fs::remove_all(top);
    REQUIRE_CONTAINS(child("build", environment + " CHILD_UMASK=" + mask).output, "built 1");
    REQUIRE(mode(top) == 0700 && mode(cache) == 0700);
    REQUIRE(mode(fs::directory_iterator(cache)->path()) == 0600);
  }
  const fs::path file = fs::directory_iterator(cache)->path();
  const auto refused = [&](const char* reason) {
    const Result result = child("build", environment);
    REQUIRE_CONTAINS(result.output, "built 1 loaded 0");
    REQUIRE_CONTAINS(result.output, reason);
    // It was replaced by one that is trusted.
    REQUIRE_CONTAINS(child("build", environment).output, "built 0 loaded 1");
  };
  fs::permissions(file, fs::perms::others_write, fs::perm_options::add);
  refused("can be written by others");
  fs::rename(file, top + "/elsewhere");
  fs::create_symlink(top + "/elsewhere", file);
  refused("it is a link");
  fs::remove(file);
  REQUIRE(mkfifo(file.c_str(), 0600) == 0);  // nobody writes to it
  refused("no regular file");
  if (geteuid() == 0) {
    fs::permissions(cache, fs::perms(0755));
    REQUIRE(chown(file.c_str(), 65534, 65534) == 0);
    refused("belongs to another user");
  }
  // A folder above that others may write to: they could put another one in this one's place. Not so
  // where it is sticky.
  for (const int above : {0777, 01777}) {
    fs::permissions(top, fs::perms(above));
    const Result result = child("build", environment);
    REQUIRE_CONTAINS(result.output, above == 0777 ? "built 1 loaded 0" : "built 0 loaded 1");
    REQUIRE(contains(result.output, "is in " + fs::canonical(top).string()) == (above == 0777));
  }
  if (geteuid() == 0) {
    REQUIRE(chown(top.c_str(), 65534, 65534) == 0);
    REQUIRE_CONTAINS(child("build", environment).output, "which belongs to another user");
    REQUIRE(chown(top.c_str(), 0, 0) == 0);
  }
  // A folder that takes its place while it is open changes nothing.
  const Result swapped = child("swap", environment);
  REQUIRE_CONTAINS(swapped.output, "stored 1 of 1");
  REQUIRE(fs::is_symlink(cache) && fs::is_empty(top + "/other"));
}

// Times of last use decide: those of the fake files are set, that of the one loaded is now.
void test_cache_size(Device& device) {
  const std::string cache = work_folder + "/limited" + index_text(device);
  const std::string environment = "TORCH_OCL_CACHE=1 TORCH_OCL_CACHE_DIR=" + cache +
                                  " TORCH_OCL_CACHE_SIZE=1" + " CHILD_DEVICE=" + index_text(device);
  REQUIRE_CONTAINS(child("build", environment).output, "built 1 loaded 0");
  const fs::path used = fs::directory_iterator(cache)->path();
  const auto put = [&](const fs::path& path, int days_old, size_t kilobytes) {
    if (kilobytes > 0) write_file(path, std::string(kilobytes << 10, 'x'));
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(24 * days_old));
  };
  put(used, 10, 0);
  put(cache + "/oldest.bin", 9, 400);
  put(cache + "/old.bin", 8, 400);
  put(cache + "/newest.bin", 6, 450);
  put(cache + "/notes.txt", 20, 3000);  // not ours
  put(cache + "/killed.bin.1.0.tmp", 2, 1);
  put(cache + "/written.bin.2.0.tmp", 0, 1);
  const auto exists = [&](const char* name) { return fs::exists(cache + "/" + name); };
  REQUIRE_CONTAINS(child("build", environment).output, "built 0 loaded 1");
  REQUIRE(exists("oldest.bin"));  // nothing was written
  REQUIRE_CONTAINS(child("build_other", environment).output, "built 1 loaded 0");
  REQUIRE(!exists("oldest.bin") && !exists("old.bin"));
  REQUIRE(exists("newest.bin") && exists("notes.txt") && fs::exists(used));
  REQUIRE(!exists("killed.bin.1.0.tmp") && exists("written.bin.2.0.tmp"));
  REQUIRE_CONTAINS(child("build_other", environment).output, "built 0 loaded 1");
  // Several processes at a time: nobody minds what the others remove.
  put(cache + "/oldest.bin", 9, 1200);
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const Result result = child("build_other", environment + " ADD=" + std::to_string(100 + i));
      failed += result.code != 0 || contains(result.output, "warning");
    });
  }
  for (std::thread& thread : threads) thread.join();
  REQUIRE(failed == 0 && !exists("oldest.bin"));
}

}  // namespace floor1
