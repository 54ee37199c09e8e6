#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/dtype.hpp"

namespace tessera::trace {

/// What a kernel, copy or fill does, as far as its time depends on it.
struct KernelWork {
  std::string name;           ///< tells apart variants that run at different rates
  DType dtype = DType::fp32;  ///< of the factors that it multiplies
  double flops = 0;           ///< floating-point operations
  double bytes = 0;           ///< read and written, each array once
  /// The sizes that its rate depends on: rows and columns, or the m, n and k of a product.
  std::array<std::int64_t, 3> sizes{};

  friend bool operator==(const KernelWork&, const KernelWork&) = default;
};

/// One entry of a batch of collectives.
struct CollectiveWork {
  std::string name;  ///< "all_gather", ...
  double bytes = 0;  ///< of the whole tensor

  friend bool operator==(const CollectiveWork&, const CollectiveWork&) = default;
};

/// A batch, on one of the rank's communicators.
struct BatchWork {
  std::string label;      ///< Batch::label
  std::size_t group = 0;  ///< the communicator: an index into WorkLog::groups()
  std::vector<CollectiveWork> entries;

  friend bool operator==(const BatchWork&, const BatchWork&) = default;
};

/// One thing that was enqueued.
struct WorkEntry {
  /// What was enqueued, and what `index` is an index of.
  enum class Kind : std::uint8_t {
    kernel,     ///< kernels()[index] runs on `stream`
    batch,      ///< batches()[index] runs on `stream`
    record,     ///< `stream` reaches mark `index`
    wait,       ///< `stream` waits until mark `index` is reached
    host_wait,  ///< the enqueuing thread waits until mark `index` is reached
    step,       ///< a step ends when the compute stream reaches this entry
  };
  Kind kind{};
  int stream = 0;         ///< index into streams()
  std::size_t index = 0;  ///< as `kind` says
  int phase = 0;          ///< index into phases()
  double seconds = 0;     ///< how long a kernel took, where it ran and was timed; else 0

  friend bool operator==(const WorkEntry&, const WorkEntry&) = default;
};

/// What one rank enqueues on its streams, in the order in which it does so. The time of a step can
/// be worked out from it (profile/step_time.hpp). Plain data. Threads: one.
class WorkLog {
 public:
  /// Adds a stream and returns its number. The compute stream is added first.
  int add_stream(std::string name);
  /// Adds a communicator, whose `members` are ranks of the job in ascending order, and returns its
  /// number.
  std::size_t add_group(std::vector<int> members);

  /// Makes what is logged from now on belong to this phase ("forward", ...).
  void enter(std::string_view phase);
  /// Logs a kernel, copy or fill on `stream`, and how long it took if it was timed.
  void kernel(int stream, KernelWork work, double seconds = 0);
  /// Logs a batch of collectives on `stream`.
  void batch(int stream, BatchWork work);
  /// Logs a new mark on `stream` and returns its number.
  std::size_t record(int stream);
  /// Logs that `stream` waits for `mark`.
  void wait(int stream, std::size_t mark);
  /// Logs that the enqueuing thread waits for `mark`.
  void host_wait(std::size_t mark);
  /// Logs the end of a step, on the compute stream.
  void end_step();

  /// The names of all streams, by number.
  [[nodiscard]] const std::vector<std::string>& streams() const noexcept { return streams_; }
  /// The members of all communicators, by number.
  [[nodiscard]] const std::vector<std::vector<int>>& groups() const noexcept { return groups_; }
  /// All phases that were entered, after "" for what comes before the first.
  [[nodiscard]] const std::vector<std::string>& phases() const noexcept { return phases_; }
  /// Everything that was enqueued, in order.
  [[nodiscard]] const std::vector<WorkEntry>& entries() const noexcept { return entries_; }
  /// All kernels, copies and fills, in order.
  [[nodiscard]] const std::vector<KernelWork>& kernels() const noexcept { return kernels_; }
  /// All batches, in order.
  [[nodiscard]] const std::vector<BatchWork>& batches() const noexcept { return batches_; }
  /// The number of marks.
  [[nodiscard]] std::size_t marks() const noexcept { return marks_; }

 private:
  void add(WorkEntry::Kind kind, int stream, std::size_t index, double seconds = 0);

  std::vector<std::string> streams_;
  std::vector<std::vector<int>> groups_;
  std::vector<std::string> phases_{""};
  std::vector<WorkEntry> entries_;
  std::vector<KernelWork> kernels_;
  std::vector<BatchWork> batches_;
  std::size_t marks_ = 0;
  int phase_ = 0;
};

}  // namespace tessera::trace
