#include "tessera/checkpoint/checkpointer.hpp"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "checkpoint/collective_failure.hpp"
#include "checkpoint/save_schedule.hpp"
#include "checkpoint/saver.hpp"
#include "tessera/base/error.hpp"

namespace tessera {
namespace {

void check(const CheckpointerOptions& options) {
  expects(options.every >= 0 && options.minutes.count() >= 0,
          "Checkpointer: `every` and `minutes` must be 0 or more");
  expects(options.keep >= 0 && options.keep_every >= 0,
          "Checkpointer: `keep` and `keep_every` must be 0 or more");
}

}  // namespace

class Checkpointer::Work {
 public:
  Work(ShardedModel& model, CheckpointerOptions options)
      : model_{model},
        kept_every_{options.keep > 0 ? options.keep_every : 0},
        saver_{model,
               {.folder = std::move(options.folder),
                .save = std::move(options.save),
                .mode = options.asynchronous ? checkpoint::SaveMode::asynchronous
                                             : checkpoint::SaveMode::synchronous,
                .keep = checkpoint::Retention{.last = options.keep, .every = options.keep_every},
                .call = "Checkpointer"}},
        schedule_{options.every, options.minutes, std::chrono::steady_clock::now} {
    saver_.rehearse();
  }

  void after_step(const std::function<CheckpointExtras()>& extras) {
    const std::int64_t step = model_.steps();
    due_ = due_ || schedule_.is_due_at(step) || is_due_by_time(step);
    if (due_ && stays(step) && saver_.under_way()) {
      save(extras ? extras() : CheckpointExtras{});
      return throw_pending();
    }
    throw_pending();
    if (saver_.under_way()) { saver_.poll(); }
    if (due_ && !saver_.under_way()) { begin(extras ? extras() : CheckpointExtras{}); }
  }

  // A failure of the save under way is reported later: it must not keep this one from beginning.
  void save(const CheckpointExtras& extras) {
    const std::exception_ptr failure = checkpoint::failure_of([&] { saver_.finish(); });
    if (failure) { pending_ = failure; }
    begin(extras);
  }

  void finish() {
    saver_.finish();
    throw_pending();
  }
  [[nodiscard]] const SaveReport& newest() const noexcept { return saver_.newest(); }

 private:
  // Older checkpoints may be removed, but not this step's. If the save began late, it would be
  // another step's.
  [[nodiscard]] bool stays(std::int64_t step) const noexcept {
    return kept_every_ > 0 && step % kept_every_ == 0;
  }

  bool is_due_by_time(std::int64_t step) {
    World& world = model_.world();
    if (world.simulated() || !schedule_.asks_at(step)) { return false; }
    const std::string mine = world.rank() == 0 ? schedule_.answer(step) : std::string{};
    return schedule_.hear(step, world.exchange(mine).front());
  }

  void throw_pending() {
    if (pending_) { std::rethrow_exception(std::exchange(pending_, nullptr)); }
  }

  void begin(const CheckpointExtras& extras) {
    due_ = false;
    schedule_.begin_interval(model_.steps());
    saver_.begin(extras);
  }

  ShardedModel& model_;
  std::int64_t kept_every_;  // 0: no checkpoint is kept for its step
  checkpoint::Saver saver_;
  checkpoint::SaveSchedule schedule_;
  bool due_ = false;
  std::exception_ptr pending_;  // failure of an ended save
};

Checkpointer::Checkpointer(ShardedModel& model, CheckpointerOptions options) {
  check(options);
  work_ = std::make_unique<Work>(model, std::move(options));
}

Checkpointer::~Checkpointer() = default;

void Checkpointer::after_step(const std::function<CheckpointExtras()>& extras) {
  work_->after_step(extras);
}

void Checkpointer::save(const CheckpointExtras& extras) {
  work_->save(extras);
}

void Checkpointer::finish() {
  work_->finish();
}

SaveReport Checkpointer::report() const {
  return work_->newest();
}

std::filesystem::path Checkpointer::newest() const {
  return work_->newest().path;
}

std::string Checkpointer::warning() const {
  return work_->newest().warning;
}

}  // namespace tessera
