#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace tessera::comm {

/// The kinds of calls that ranks make together: texts, batches of the two channels, the agreement
/// before a run's first collective, and the end of a run.
enum class CallKind : std::uint16_t {
  gather_text,
  reduce_text,
  setup,
  end,
  gather_batch,
  reduce_batch,
};
inline constexpr std::size_t kCallKinds = 6;

/// The number of the group of all ranks of the job.
inline constexpr std::uint64_t kAllRanks = 0;

/// A series of calls numbered together from 0: calls of one kind, among all ranks or within a
/// group.
struct CallSeries {
  CallSeries(CallKind kind_,
             std::uint64_t group_ = kAllRanks) noexcept  // implicit: a kind alone means all ranks
      : kind{kind_}, group{group_} {}

  CallKind kind;
  std::uint64_t group;
  friend auto operator<=>(const CallSeries&, const CallSeries&) = default;
};

/// The kinds of messages between rank 0's coordinator and the ranks.
enum class FrameType : std::uint16_t {
  hello,    ///< A rank identifies itself to the coordinator.
  welcome,  ///< The coordinator tells all ranks that all are here.
  refuse,   ///< The coordinator tells a process why it cannot join. `sequence` is 1 if it may try
            ///< again.
  group,    ///< A rank announces a group that it is in, with the group's name and ranks.
  text,     ///< A rank sends its text in a call.
  texts,    ///< The coordinator sends the texts of all ranks to all ranks of the call.
  failure,  ///< `rank` has failed. `sequence` is its status and the payload its reason: 0 and empty
            ///< if it had no memory to say more.
  lost,     ///< The coordinator tells all ranks that `rank`'s connection ended before its run did.
  at_end,   ///< `rank` has ended its run. The payload has the number of calls that it made.
  ask,      ///< A rank asks the coordinator which ranks keep it waiting in a call.
  answer,   ///< The coordinator names those ranks and the ranks that hold them up elsewhere, with
            ///< the call. If all have made the call, it names the ranks that hold one of them up.
  issued,   ///< A rank sends the hashes of its batches on a channel, from `sequence` on.
  explain,  ///< The coordinator asks all ranks of the call for batch `sequence`.
  code,     ///< A rank sends its batch after a byte, which is 1 if the rank still has it.
  held,     ///< A rank is held up in batch `sequence`, or no longer.
  differ,   ///< The coordinator tells all ranks why the job cannot go on (empty if it has no
            ///< memory to say so). `rank` reports it.
  known,    ///< The coordinator tells a rank that it belongs to the job, whose other ranks are to
            ///< come.
};

struct Frame {
  FrameType type = FrameType::hello;
  CallSeries call = CallKind::setup;
  std::uint64_t sequence = 0;
  std::int32_t rank = 0;
  std::string payload = {};
};

/// The longest text that a rank may send. Every rank gets the texts of all.
inline constexpr std::size_t kMostTextBytes = std::size_t{64} << 20;

/// Appends `frame` to `out` in its wire format.
void append(std::string& out, const Frame& frame);

/// Cuts received bytes into frames. It keeps nothing that does not begin like a frame or is longer
/// than allowed.
class FrameReader {
 public:
  explicit FrameReader(std::size_t most_bytes) noexcept : most_bytes_{most_bytes} {}

  void allow(std::size_t most_bytes) noexcept { most_bytes_ = most_bytes; }
  /// Adds bytes. Returns false if they are not of this protocol; nothing later is read then.
  [[nodiscard]] bool add(std::string_view arrived);
  /// Takes the next frame and returns true, if one is complete.
  [[nodiscard]] bool next(Frame& frame);

 private:
  [[nodiscard]] bool acceptable() const noexcept;

  std::size_t most_bytes_;
  std::string bytes_;
  std::size_t begin_ = 0;
};

/// Writes numbers and texts into a payload, one after another.
class PayloadWriter {
 public:
  PayloadWriter& number(std::int64_t value);
  PayloadWriter& text(std::string_view value);
  [[nodiscard]] std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Reads numbers and texts in the order in which they were written. Throws CommError if bytes are
/// missing.
class PayloadReader {
 public:
  explicit PayloadReader(std::string_view bytes) noexcept : bytes_{bytes} {}
  [[nodiscard]] std::int64_t number();
  [[nodiscard]] std::string text();
  [[nodiscard]] bool empty() const noexcept { return bytes_.empty(); }

 private:
  [[nodiscard]] std::string_view take(std::size_t bytes);

  std::string_view bytes_;
};

}  // namespace tessera::comm
