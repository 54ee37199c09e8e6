#include "comm/control/failure_message.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace tessera {
namespace {

// The most ranks that a message lists besides its text, which FailureState bounds. Such a message
// is sent at once, even if its receiver is not in MPI: MPI libraries send up to 4 KiB without
// waiting.
constexpr std::size_t kMostNamed = 200;
constexpr std::size_t kTextBytes = 3000;

void append_number(std::string& message, std::int32_t number) {
  message.append(reinterpret_cast<const char*>(&number), sizeof number);
}

FailureMessage of_no_message() {
  return {.text = "a rank has failed, and its message with the reason cannot be read"};
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
  struct {
    std::int32_t status, after_deadline, named;
  } head{};
  if (bytes.size() < sizeof head) { return of_no_message(); }
  std::memcpy(&head, bytes.data(), sizeof head);
  bytes.remove_prefix(sizeof head);
  const auto named = static_cast<std::size_t>(head.named);
  if (head.named < 0 || named > bytes.size() / sizeof(std::int32_t)) { return of_no_message(); }
  FailureMessage read{
      .status = head.status, .missing = {}, .after_deadline = head.after_deadline, .text = {}};
  for (std::size_t i = 0; i < named; ++i) {
    std::int32_t rank = 0;
    std::memcpy(&rank, bytes.data(), sizeof rank);
    bytes.remove_prefix(sizeof rank);
    read.missing.push_back(rank);
  }
  read.text = bytes;
  return read;
}

}  // namespace tessera
