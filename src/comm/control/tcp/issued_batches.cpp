#include "comm/control/tcp/issued_batches.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <utility>

namespace tessera::comm {
namespace {

constexpr std::size_t kKept = 1024;

}  // namespace

void IssuedBatches::add(std::string code) {
  unsent_.push_back(XXH3_64bits(code.data(), code.size()));
  codes_.push_back(std::move(code));
  if (codes_.size() > kKept) { codes_.pop_front(); }
  ++count_;
}

std::optional<Frame> IssuedBatches::take_unsent() {
  if (unsent_.empty()) { return {}; }
  Frame frame;
  frame.type = FrameType::issued;
  frame.call = channel_;
  frame.sequence = count_ - unsent_.size();
  frame.payload.assign(reinterpret_cast<const char*>(unsent_.data()),
                       unsent_.size() * sizeof unsent_[0]);
  unsent_.clear();
  return frame;
}

Frame IssuedBatches::explain(const Frame& asked) const {
  Frame frame = asked;
  frame.type = FrameType::code;
  frame.payload = std::string(1, '\0');
  if (asked.sequence < count_ && count_ - asked.sequence <= codes_.size()) {
    frame.payload[0] = 1;
    frame.payload += codes_[codes_.size() - static_cast<std::size_t>(count_ - asked.sequence)];
  }
  return frame;
}

}  // namespace tessera::comm
