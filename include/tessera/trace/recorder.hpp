#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

namespace tessera::trace {

/// The kinds of records. The rank's own thread makes `issue` records in program order, and they are
/// the same in every run. Spans have a begin and an end on the clock, and are made where the work
/// ran.
enum class Kind : std::uint8_t {
  issue,       ///< the engine enqueued an action: "gather", "reshard", "reduce", "update", ...
  compute,     ///< span: a caller's scope was open ("forward", "backward") or the optimizer ran
  collective,  ///< span: a collective moved data; `bytes` is what this rank sends by the formula
  copy,        ///< span: `bytes` moved between the device and the host pool ("offload", "reload",
               ///< "snapshot")
  allocate,    ///< an arena or buffer of `bytes` was allocated: `what` is its category, `unit` its
               ///< name
  release,     ///< an arena or buffer was freed
  use,         ///< `unit` began to use allocated `bytes`; `what` is the category
  unuse,       ///< `unit` ended that use. Memory in use is allocate + use - unuse - release
  host,        ///< span: the host computed on its pool ("update", "norm", "accumulate"), or the
               ///< device updated state from the pool (stream "update")
};

/// One record: plain data.
struct Record {
  Kind kind = Kind::issue;    ///< what the record describes
  std::string what;           ///< the action, or the category of memory
  std::string unit;           ///< the unit (or buffer) that it concerns
  std::size_t bytes = 0;      ///< as Kind says
  std::int64_t step = 0;      ///< optimizer steps finished before this record
  std::uint64_t thread = 0;   ///< the same number for the same thread
  std::int64_t begin_ns = 0;  ///< on the clock of now_ns; begin == end for instants
  std::int64_t end_ns = 0;    ///< on the same clock
  std::string phase = {};     ///< the rank's phase at that moment: "setup", "forward", ...
  std::string during = {};    ///< the unit of that phase
  /// The stream of a span: "compute", "gather", "reduce", "offload", "update" or "host".
  std::string stream = {};
};

/// Returns the time in nanoseconds, on the steady clock that records use.
[[nodiscard]] std::int64_t now_ns() noexcept;
/// Returns the number that identifies the calling thread in records.
[[nodiscard]] std::uint64_t this_thread() noexcept;

/// Collects the records of one rank. Threads: any thread may add.
class Recorder {
 public:
  /// Adds `record` with the calling thread's number. A record without times becomes an instant,
  /// now; a record whose `end_ns` is 0 becomes a span that ends now.
  void add(Record record);
  /// Makes `add` ignore all later records, so that a long run keeps the records of its first steps.
  void stop();
  /// Returns a copy of the records that are kept, in the order in which they were added.
  [[nodiscard]] std::vector<Record> records() const;
  /// Removes all records.
  void clear();

  /// Keeps only the current step and the last `steps` finished ones from now on; 0 keeps all.
  /// Allocations and uses of memory that is still held stay too, so that the records add up to the
  /// memory held at every moment.
  void keep_last(int steps);
  /// Marks the end of a step. The engine calls it at the end of ShardedModel::step.
  void end_step();

 private:
  void drop_first_step();

  mutable std::mutex mutex_;
  std::deque<Record> records_;
  std::vector<Record> held_;       // memory still held, from steps that have been dropped
  std::deque<std::size_t> steps_;  // sizes, in records, of the steps that have ended
  std::size_t ended_ = 0;          // their sum
  std::size_t keep_ = 0;
  bool stopped_ = false;
};

}  // namespace tessera::trace
