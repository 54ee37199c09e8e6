#include "comm/control/control_text.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "comm/control/tcp/frame.hpp"
#include "tessera/base/error.hpp"

namespace tessera::comm {
namespace {

/// A rank's text with its call.
struct Said {
  explicit Said(const std::string& sealed) {
    PayloadReader reader{sealed};
    const std::int64_t number = reader.number();
    name = reader.text();
    text = reader.text();
    const bool known = number >= 0 && number <= static_cast<std::int64_t>(TextCall::number);
    if (!known || !reader.empty()) {
      throw CommError{
          "a rank sent a text that belongs to no call; start the same program on all ranks"};
    }
    call = static_cast<TextCall>(number);
  }

  /// What the rank does in the call, in words.
  [[nodiscard]] std::string doing() const {
    switch (call) {
      case TextCall::split:
        return fmt::format("splits off \"{}\"", name);
      case TextCall::number:
        return fmt::format("makes a communicator for \"{}\"", name);
      default:
        return "exchanges texts";
    }
  }

  TextCall call;
  std::string name;
  std::string text;
};

}  // namespace

std::string seal(TextCall call, std::string_view text, std::string_view name) {
  return PayloadWriter{}.number(static_cast<std::int64_t>(call)).text(name).text(text).take();
}

std::vector<std::string> unseal(std::span<const std::string> sealed, const NameOfRank& name_of) {
  const Said first{sealed.front()};
  std::vector<std::string> texts;
  texts.reserve(sealed.size());
  for (const std::string& other : sealed) {
    if (other == sealed.front()) {  // always true for a million simulated ranks
      texts.push_back(first.text);
      continue;
    }
    Said said{other};
    if (said.call != first.call) {
      throw ContractError{fmt::format(
          "{} {} where {} {}; every rank must make the same collective calls in the same "
          "order",
          name_of(static_cast<int>(texts.size())), said.doing(), name_of(0), first.doing())};
    }
    texts.push_back(std::move(said.text));
  }
  return texts;
}

}  // namespace tessera::comm
