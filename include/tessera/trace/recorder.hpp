#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

namespace tessera::trace {

/// What a record describes. `issue` records are made by the rank's own thread in program order and
/// are the same in every run; spans have a begin and an end on the clock and are made where the
/// work ran.
enum class Kind : std::uint8_t {
  issue,       // the engine asked for something: "gather", "reshard", "reduce", "update", ...
  compute,     // span: a scope of the caller was open ("forward", "backward") or the optimizer ran
  collective,  // span: a collective moved data; `bytes` is what this rank sends by the formula
  copy,        // span: `bytes` moved between the device and the host pool ("offload", "reload")
  allocate,    // an arena or buffer was taken; `bytes`, `what` is the category, `unit` its name
  release,     // ... and given back
  use,         // memory that had been allocated came into use, by `unit`; as allocate
  unuse,       // ... and is out of use: in use is allocate + use - unuse - release
  host,        // span: the host computed on what lies in its pool ("update", "norm", "accumulate")
};

/// One plain record. `what` names the action, `unit` the unit (or buffer) it concerns.
struct Record {
  Kind kind = Kind::issue;
  std::string what;
  std::string unit;
  std::size_t bytes = 0;
  std::int64_t step = 0;      // optimizer steps finished before this record
  std::uint64_t thread = 0;   // the same number for the same thread
  std::int64_t begin_ns = 0;  // steady clock; begin == end for instants
  std::int64_t end_ns = 0;
  std::string phase = {};   // of the rank's program at that moment: "setup", "forward", ...
  std::string during = {};  // the unit of that phase
  // Of a span, where it ran: "compute", "gather", "reduce", "offload", "host".
  std::string stream = {};
};

/// Nanoseconds on the clock of the records.
[[nodiscard]] std::int64_t now_ns() noexcept;
/// The number that records made by the calling thread carry.
[[nodiscard]] std::uint64_t this_thread() noexcept;

/// Collects the records of one rank. Threads: any thread may add.
class Recorder {
 public:
  /// Adds `record` with the calling thread's number. Both times zero: an instant, now. Only
  /// `end_ns` zero: a span that ends now.
  void add(Record record);
  /// Adds nothing from now on: so that a run of many steps can show its first ones.
  void stop();
  [[nodiscard]] std::vector<Record> records() const;
  void clear();

  /// From now on keeps the last `steps` steps that have ended and the one under way; 0: all. Of the
  /// steps before, what took memory that is still held stays: allocations without their release
  /// and uses without their end, so that what is kept sums to what is held at every moment.
  void keep_last(int steps);
  /// Says that a step has ended: the engine does, at the end of ShardedModel::step.
  void end_step();

 private:
  void drop_first_step();

  mutable std::mutex mutex_;
  std::deque<Record> records_;
  std::vector<Record> held_;       // of steps that have been dropped
  std::deque<std::size_t> steps_;  // sizes, in records, of the steps that have ended
  std::size_t ended_ = 0;          // their sum
  std::size_t keep_ = 0;
  bool stopped_ = false;
};

}  // namespace tessera::trace
