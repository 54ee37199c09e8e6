#include "comm/control/failure_message.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace tessera {
namespace {

// Ranks that a message names beside its text, which FailureState bounds: a message leaves at once,
// whether or not its receiver is in MPI, as libraries send up to 4 KiB without waiting.
constexpr std::size_t kMostNamed = 200;
constexpr std::size_t kTextBytes = 3000;

void append_number(std::string& message, std::int32_t number) {
  message.append(reinterpret_cast<const char*>(&number), sizeof number);
}

}  // namespace

std::string encode(const FailureMessage& said) {
  const std::size_t named = std::min(said.missing.size(), kMostNamed);
  std::string message;
  append_number(message, said.status);
  append_number(message, said.after_deadline);
  append_number(message, static_cast<std::int32_t>(named));
  for (std::size_t i = 0; i < named; ++i) { append_number(message, said.missing[i]); }
  return message.append(said.text, 0, kTextBytes);
}

FailureMessage decode_failure(std::string_view bytes) {
  std::size_t at = 0;
  const auto number = [&] {
    std::int32_t value = 0;
    if (at + sizeof value > bytes.size()) { return value; }
    std::memcpy(&value, bytes.data() + at, sizeof value);
    at += sizeof value;
    return value;
  };
  FailureMessage read;
  read.status = number();
  read.after_deadline = number();
  for (std::int32_t left = number(); left > 0 && at < bytes.size(); --left) {
    read.missing.push_back(number());
  }
  read.text = bytes.substr(at);
  return read;
}

}  // namespace tessera
