// Saves small checkpoints one after the other until it is killed, or checks what is left. Trials
// (scripts/trials/saves.py) kill it.
//
//   checkpoint_saver save DIR    prints the step of each checkpoint once it is committed
//   checkpoint_saver check DIR   prints the newest step, if all checkpoints are whole
#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

#include "checkpoint/file_system.hpp"
#include "checkpoint/saved_checkpoint.hpp"
#include "checkpoint/store.hpp"
#include "tessera/base/error.hpp"
#include "tessera/checkpoint/checkpoint.hpp"

namespace {

using namespace tessera;

constexpr checkpoint::Retention kKeep{.last = 2, .every = 100};
constexpr std::int64_t kSavedTwice = 3;  // every third step

/// Returns 0 if the folder is new.
std::int64_t newest_step(const std::string& folder) {
  const auto entries = checkpoint::CheckpointStore{folder, checkpoint::system_files()}.list();
  return entries.empty() ? 0 : newest_checkpoint(folder).step;
}

[[noreturn]] void save(const std::string& folder) {
  checkpoint::CheckpointStore store{folder, checkpoint::system_files()};
  for (std::int64_t step = newest_step(folder) + 1;; ++step) {
    for (int times = step % kSavedTwice == 0 ? 2 : 1; times > 0; --times) {
      const auto committed = test::save_step(store, checkpoint::system_files(), step);
      if (!committed.no_weights.empty()) { throw std::runtime_error(committed.no_weights); }
      std::printf("%lld\n", static_cast<long long>(step));
      std::fflush(stdout);
      store.retain(kKeep);
    }
  }
}

void check(const std::string& folder) {
  const std::int64_t newest = newest_step(folder);
  bool has_the_one_before = newest <= 1;
  for (const auto& entry : checkpoint::CheckpointStore{folder, checkpoint::system_files()}.list()) {
    test::SavedCheckpoint{entry.step}.check(entry.folder);
    has_the_one_before = has_the_one_before || entry.step == newest - 1;
  }
  if (!has_the_one_before) { throw std::runtime_error("the one before the newest is lost"); }
  std::printf("%lld\n", static_cast<long long>(newest));
}

}  // namespace

int main(int count, char** words) {
  const std::string what = count == 3 ? words[1] : "";
  try {
    if (what == "save") { save(words[2]); }
    if (what == "check") { check(words[2]); }
    return what == "check" ? 0 : 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
