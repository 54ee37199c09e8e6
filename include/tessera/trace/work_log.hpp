#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/dtype.hpp"

namespace tessera::trace {

/// The work of a kernel, copy or fill, as far as its time depends on it.
struct KernelWork {
  std::string name;           ///< the kernel; variants that run at different rates have own names
  DType dtype = DType::fp32;  ///< type of the factors that it multiplies
  double flops = 0;           ///< floating-point operations
  double bytes = 0;           ///< bytes read and written, each array counted once
  /// The sizes that the rate depends on: rows and columns, or the m, n and k of a product.
  std::array<std::int64_t, 3> sizes{};

  friend bool operator==(const KernelWork&, const KernelWork&) = default;
};

/// One entry of a batch of collectives.
struct CollectiveWork {
  std::string name;  ///< the operation: "all_gather", ...
  double bytes = 0;  ///< bytes of the whole tensor

  friend bool operator==(const CollectiveWork&, const CollectiveWork&) = default;
};

/// A batch of collectives on one of the rank's communicators.
struct BatchWork {
  std::string label;                    ///< Batch::label
  std::size_t group = 0;                ///< the communicator: an index into WorkLog::groups()
  std::vector<CollectiveWork> entries;  ///< the operations, in the order of the batch

  friend bool operator==(const BatchWork&, const BatchWork&) = default;
};

/// One entry of a WorkLog.
struct WorkEntry {
  /// What was enqueued, and the list that `index` refers to.
  enum class Kind : std::uint8_t {
    kernel,     ///< kernels()[index] runs on `stream`
    batch,      ///< batches()[index] runs on `stream`
    record,     ///< `stream` reaches mark `index`
    wait,       ///< `stream` waits until mark `index` is reached
    host_wait,  ///< the enqueuing thread waits until mark `index` is reached
    step,       ///< a step ends when the compute stream reaches this entry
  };
  Kind kind{};            ///< what was enqueued
  int stream = 0;         ///< index into streams()
  std::size_t index = 0;  ///< index into the list of `kind`
  int phase = 0;          ///< index into phases()
  double seconds = 0;     ///< measured time of a kernel; 0 if it was not timed

  friend bool operator==(const WorkEntry&, const WorkEntry&) = default;
};

/// Everything that one rank enqueues on its streams, in order. step_time computes the time of a
/// step from it. It is plain data, for one thread at a time.
class WorkLog {
 public:
  /// Adds a stream and returns its number. The compute stream is added first.
  int add_stream(std::string name);
  /// Adds a communicator, whose `members` are ranks of the job in ascending order, and returns its
  /// number.
  std::size_t add_group(std::vector<int> members);

  /// Sets the phase ("forward", ...) of all entries from now on.
  void enter(std::string_view phase);
  /// Logs a kernel, copy or fill on `stream`, with its measured time, or 0 if it was not timed.
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

  /// Returns the names of all streams, by number.
  [[nodiscard]] const std::vector<std::string>& streams() const noexcept { return streams_; }
  /// Returns the members of all communicators, by number.
  [[nodiscard]] const std::vector<std::vector<int>>& groups() const noexcept { return groups_; }
  /// Returns all phases. The first is "", for entries before the first call of `enter`.
  [[nodiscard]] const std::vector<std::string>& phases() const noexcept { return phases_; }
  /// Returns all entries, in order.
  [[nodiscard]] const std::vector<WorkEntry>& entries() const noexcept { return entries_; }
  /// Returns all kernels, copies and fills, in order.
  [[nodiscard]] const std::vector<KernelWork>& kernels() const noexcept { return kernels_; }
  /// Returns all batches, in order.
  [[nodiscard]] const std::vector<BatchWork>& batches() const noexcept { return batches_; }
  /// Returns the number of marks.
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
