#include "comm/rendezvous/batch_dispute.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "comm/batch_code.hpp"
#include "comm/batch_text.hpp"
#include "comm/failure_texts.hpp"
#include "tessera/base/error.hpp"

namespace tessera {
namespace {

using namespace std::chrono_literals;

// Batches that some ranks have issued and others not yet.
constexpr std::size_t kMostIssued = std::size_t{1} << 20;
constexpr auto kPatience = 1s;
constexpr auto kAskAgain = 20ms;

std::optional<std::size_t> index_of(CallKind channel) {
  if (channel == CallKind::gather_batch) { return 0; }
  if (channel == CallKind::reduce_batch) { return 1; }
  return {};
}

}  // namespace

BatchDispute::BatchDispute(int ranks)
    : ranks_{ranks}, issued_{CallLedger{ranks}, CallLedger{ranks}} {}

void BatchDispute::on_issued(int rank, const Frame& frame) {
  std::vector<std::uint64_t> hashes(frame.payload.size() / sizeof(std::uint64_t));
  if (hashes.size() > kMostIssued) { throw CommError{"more batches than a rank can issue"}; }
  std::memcpy(hashes.data(), frame.payload.data(), hashes.size() * sizeof(std::uint64_t));
  const auto index = index_of(frame.call);
  if (!index || !issued_[*index].add(rank, frame.sequence, hashes)) {
    throw CommError{"a rank's batches are not in order"};
  }
  const auto difference = issued_[*index].difference();
  if (!difference || dispute_) { return; }
  dispute_.emplace();
  dispute_->channel = frame.call;
  dispute_->sequence = *difference;
  dispute_->codes.resize(static_cast<std::size_t>(ranks_));
}

void BatchDispute::on_code(int rank, Frame& frame) {
  if (!dispute_ || frame.payload.empty() || frame.payload[0] != 1 ||
      frame.call != dispute_->channel || frame.sequence != dispute_->sequence) {
    return;
  }
  (void)decode(std::string_view{frame.payload}.substr(1));  // throws if it is none
  dispute_->codes[static_cast<std::size_t>(rank)] = frame.payload.substr(1);
}

/// Asks those that have not said what they issued, and tells all the difference once all have, or a
/// while has passed.
void BatchDispute::settle(const Say& say) {
  if (!dispute_ || dispute_->told || Clock::now() < dispute_->ask_at) { return; }
  Dispute& dispute = *dispute_;
  dispute.ask_at = Clock::now() + kAskAgain;
  const bool all = std::all_of(dispute.codes.begin(), dispute.codes.end(),
                               [](const auto& code) { return code.has_value(); });
  Frame frame;
  frame.call = dispute.channel;
  frame.sequence = dispute.sequence;
  dispute.told = all || Clock::now() >= dispute.since + kPatience;
  frame.type = dispute.told ? FrameType::differ : FrameType::explain;
  if (dispute.told) {
    frame.payload = disagreement_text(
        dispute.channel == CallKind::gather_batch ? "gather" : "reduce", dispute.sequence, text());
  }
  for (int rank = 0; rank < ranks_; ++rank) {
    if (dispute.told || !dispute.codes[static_cast<std::size_t>(rank)]) { say(rank, frame); }
  }
}

std::string BatchDispute::text() const {
  std::vector<Batch> batches;
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < dispute_->codes.size(); ++rank) {
    if (!dispute_->codes[rank]) { continue; }
    batches.push_back(decode(*dispute_->codes[rank]));
    ranks.push_back(static_cast<int>(rank));
  }
  if (batches.size() == dispute_->codes.size()) {
    std::vector<const Batch*> all;
    for (const Batch& batch : batches) { all.push_back(&batch); }
    return first_difference(all).value_or("the hashes of equal batches");
  }
  std::string text = "some did not say what it was";
  for (std::size_t i = 0; i < batches.size(); ++i) {
    text += fmt::format("; rank {} issued {}", ranks[i], describe(batches[i]));
  }
  return text;
}

std::optional<std::vector<int>> BatchDispute::missing(CallKind channel,
                                                      std::uint64_t sequence) const {
  const auto index = index_of(channel);
  if (!index) { return {}; }
  return issued_[*index].missing(sequence);
}

}  // namespace tessera
