#include "comm/control/tcp/batch_dispute.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "comm/batch_code.hpp"
#include "comm/batch_text.hpp"
#include "tessera/base/error.hpp"

namespace tessera::comm {
namespace {

using namespace std::chrono_literals;

// Most batches that some ranks have issued and others not yet.
constexpr std::size_t kMostIssued = std::size_t{1} << 20;
constexpr auto kPatience = 1s;
constexpr auto kAskAgain = 20ms;

bool is_channel(const CallSeries& call) {
  return call.kind == CallKind::gather_batch || call.kind == CallKind::reduce_batch;
}

}  // namespace

void BatchDispute::on_issued(int rank, const Frame& frame) {
  const std::size_t count = frame.payload.size() / sizeof(std::uint64_t);
  if (count > kMostIssued) { throw CommError{"a rank reports more batches than it can issue"}; }
  if (count == 0 || frame.payload.size() % sizeof(std::uint64_t) != 0) {
    throw CommError{"a rank's report of batches is not a whole number of hashes"};
  }
  std::vector<std::uint64_t> hashes(count);
  std::memcpy(hashes.data(), frame.payload.data(), hashes.size() * sizeof(std::uint64_t));
  if (!is_channel(frame.call)) { throw CommError{"a rank reports batches on an unknown channel"}; }
  const std::size_t at = groups_.place(frame.call.group, rank);
  const std::size_t members = groups_.members(frame.call.group).size();
  CallLedger& ledger = issued_.try_emplace(frame.call, static_cast<int>(members)).first->second;
  if (!ledger.add(static_cast<int>(at), frame.sequence, hashes)) {
    throw CommError{"a rank's report of batches is out of order"};
  }
  const auto difference = ledger.difference();
  if (!difference || dispute_) { return; }
  dispute_.emplace(Dispute{.channel = frame.call, .sequence = *difference, .codes = {}});
  dispute_->codes.resize(members);
}

void BatchDispute::on_code(int rank, Frame& frame) {
  if (!dispute_ || frame.payload.empty() || frame.payload[0] != 1 ||
      frame.call != dispute_->channel || frame.sequence != dispute_->sequence) {
    return;
  }
  (void)decode(std::string_view{frame.payload}.substr(1));  // throws if it is not a valid code
  dispute_->codes[groups_.place(frame.call.group, rank)] = frame.payload.substr(1);
}

/// Asks the ranks that have not sent their batch, and tells all ranks the difference once all have,
/// or after a while.
void BatchDispute::settle(WaitClock::Time now, const Say& say) {
  if (!dispute_ || dispute_->told || now < dispute_->ask_at) { return; }
  Dispute& dispute = *dispute_;
  if (!dispute.since) { dispute.since = now; }
  dispute.ask_at = now + kAskAgain;
  const bool all = std::all_of(dispute.codes.begin(), dispute.codes.end(),
                               [](const auto& code) { return code.has_value(); });
  Frame frame;
  frame.call = dispute.channel;
  frame.sequence = dispute.sequence;
  dispute.told = all || now >= *dispute.since + kPatience;
  frame.type = dispute.told ? FrameType::differ : FrameType::explain;
  if (dispute.told) {
    frame.rank = groups_.members(dispute.channel.group).front();
    frame.payload =
        disagreement_text(groups_.channel_name(dispute.channel), dispute.sequence, text());
  }
  tell(say, frame);
}

void BatchDispute::tell(const Say& say, const Frame& frame) const {
  if (frame.type == FrameType::differ) {
    for (const int rank : groups_.members(kAllRanks)) { say(rank, frame); }
    return;
  }
  const std::vector<int>& members = groups_.members(frame.call.group);
  for (std::size_t at = 0; at < members.size(); ++at) {
    if (!dispute_->codes[at]) { say(members[at], frame); }
  }
}

std::string BatchDispute::text() const {
  const std::vector<int>& members = groups_.members(dispute_->channel.group);
  std::vector<Batch> batches;
  std::vector<int> ranks;
  for (std::size_t at = 0; at < members.size(); ++at) {
    if (!dispute_->codes[at]) { continue; }
    batches.push_back(decode(*dispute_->codes[at]));
    ranks.push_back(members[at]);
  }
  if (batches.size() == members.size()) {
    std::vector<const Batch*> all;
    for (const Batch& batch : batches) { all.push_back(&batch); }
    return first_difference(
               all, [&](int rank) { return names_.of(members[static_cast<std::size_t>(rank)]); })
        .value_or("the hashes of equal batches");
  }
  std::string text = "some did not send theirs";
  for (std::size_t i = 0; i < batches.size(); ++i) {
    text += fmt::format("; {} issued {}", names_.of(ranks[i]), describe(batches[i]));
  }
  return text;
}

std::optional<std::vector<int>> BatchDispute::missing(const CallSeries& channel,
                                                      std::uint64_t sequence) const {
  if (!is_channel(channel)) { return {}; }
  const std::vector<int>& members = groups_.members(channel.group);
  const auto ledger = issued_.find(channel);
  if (ledger == issued_.end()) { return members; }
  std::vector<int> ranks;
  for (const int at : ledger->second.missing(sequence)) {
    ranks.push_back(members[static_cast<std::size_t>(at)]);
  }
  return ranks;
}

// Batches of one rank follow each other on its streams, also those of different groups, so a batch
// that was issued may be unable to begin. Members are left out: if batches differ, they may well
// wait here.
HeldUp BatchDispute::behind(const CallSeries& channel) const {
  const std::vector<int>& here = groups_.members(channel.group);
  for (const auto& [series, ledger] : issued_) {
    const std::vector<int>& ranks = groups_.members(series.group);
    std::map<std::uint64_t, std::vector<int>> others;  // by the number of batches issued
    std::uint64_t most = 0;
    for (std::size_t at = 0; at < ranks.size(); ++at) {
      const std::uint64_t count = ledger.issued(static_cast<int>(at));
      if (std::ranges::binary_search(here, ranks[at])) {
        most = std::max(most, count);
      } else {
        others[count].push_back(ranks[at]);
      }
    }
    if (others.empty() || others.begin()->first >= most) { continue; }
    const auto& [count, last] = *others.begin();
    return {last, batch_text(groups_.channel_name(series), count)};
  }
  return {};
}

}  // namespace tessera::comm
