#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>

#include "tessera/trace/work_log.hpp"

namespace tessera::kernels {
struct ProductChoices;
struct Table;
}  // namespace tessera::kernels

namespace tessera::device {

/// What an Event points to. Backends derive from it; `Stream` members pass it through.
class EventState {
 public:
  virtual ~EventState() = default;
  EventState(const EventState&) = delete;
  EventState& operator=(const EventState&) = delete;

  virtual void wait() = 0;
  [[nodiscard]] virtual double seconds_since(const EventState& earlier) const = 0;

 protected:
  EventState() = default;
};

/// Memory that the kernels of a stream share, one after another, so that none needs its own: a
/// kernel must not expect data of an earlier one. Aligned to 256 bytes.
struct StreamWorkspace {
  void* data = nullptr;
  std::size_t bytes = 0;
};

/// The order in which a kernel adds.
enum class SumOrder : std::uint8_t {
  fixed,  ///< the same in every run
  any     ///< in order of arrival, where that is faster
};

/// What computes on a stream: kernels (kernels/table.hpp), the threads that share their loops, the
/// order in which gradients of attention may be added, attention's workspace, and the algorithms
/// (kernels/matmul/product_choices.hpp) and multiprocessors of products.
struct StreamKernels {
  const kernels::Table* table = nullptr;
  int threads = 1;
  SumOrder attention_gradients = SumOrder::fixed;
  std::size_t attention_bytes = std::size_t{128} << 20U;  ///< kernels/attention/cudnn_rule.hpp
  const kernels::ProductChoices* products = nullptr;      ///< null: cuBLASLt's heuristic chooses
  int multiprocessors = 0;                                ///< that products may use; 0: all
};

/// What a Stream points to: the contract of each call is that of the Stream's member. The
/// destructor finishes (or, after an error, skips) enqueued work.
class StreamState {
 public:
  virtual ~StreamState() = default;
  StreamState(const StreamState&) = delete;
  StreamState& operator=(const StreamState&) = delete;

  virtual void record(EventState& event) = 0;
  virtual void wait_for(EventState& event) = 0;
  virtual void wait() = 0;
  virtual void rethrow() = 0;
  virtual void call(std::function<void()> work) = 0;
  virtual void tell_time(std::function<void(std::int64_t)> told) = 0;
  [[nodiscard]] virtual void* native() noexcept = 0;
  /// Ends the stream with `error`, as if the last enqueued work had thrown it: for failures on the
  /// host during enqueuing. Streams whose tasks run on the host end by themselves.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): overriders keep the error
  virtual void end_with(std::exception_ptr /*error*/) noexcept {}
  /// Lent by the stream's owner, who owns the memory; empty on devices whose kernels need none.
  [[nodiscard]] const StreamWorkspace& workspace() const noexcept { return workspace_; }
  void lend(const StreamWorkspace& workspace) noexcept { workspace_ = workspace; }
  /// Set by the stream's owner, for callers that only have the stream; without a table if it was
  /// not set.
  [[nodiscard]] const StreamKernels& kernels() const noexcept { return kernels_; }
  void compute_with(const StreamKernels& kernels) noexcept { kernels_ = kernels; }
  /// Whether work enqueued here is dropped: on a device that only counts.
  [[nodiscard]] virtual bool skips() const noexcept { return false; }
  /// Logs work enqueued here in `log`, as work of stream `number`: all of it on a device that only
  /// counts, kernels with their times elsewhere. `log` outlives the stream's use.
  void log_to(trace::WorkLog* log, int number) noexcept {
    log_ = log;
    number_ = number;
  }
  /// Null if nothing is logged.
  [[nodiscard]] trace::WorkLog* work_log() const noexcept { return log_; }
  [[nodiscard]] int log_number() const noexcept { return number_; }

 protected:
  StreamState() = default;

 private:
  StreamWorkspace workspace_;
  StreamKernels kernels_;
  trace::WorkLog* log_ = nullptr;
  int number_ = 0;
};

}  // namespace tessera::device
