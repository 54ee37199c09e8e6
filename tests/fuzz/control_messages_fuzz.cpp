// Payloads of frames. The first byte selects the kind.
#include <string>

#include "comm/control/tcp/messages.hpp"
#include "fuzz/fuzz.hpp"

namespace tessera::fuzz {
namespace {

// A payload that is read, written and read again is unchanged.
template <class Decode>
void check(std::string_view payload, const Decode& decode) {
  const std::string again = comm::encode(decode(payload));
  holds(comm::encode(decode(again)) == again, "a message that was written reads as it was");
}

void check_texts(std::string_view payload) {
  constexpr std::size_t kRanks = 3;
  const std::vector<std::string> texts = comm::decode_texts(payload, kRanks);
  holds(texts.size() == kRanks, "every rank has a text");
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  fuzz::Input input{data, size};
  const int which = input.byte() % 6;
  const std::string_view bytes = input.rest();
  fuzz::refuses<CommError>([&] {
    switch (which) {
      case 0:
        return fuzz::check(bytes, tessera::comm::decode_hello);
      case 1:
        return fuzz::check(bytes, tessera::comm::decode_group);
      case 2:
        return fuzz::check_texts(bytes);
      case 3:
        return fuzz::check(bytes, tessera::comm::decode_answer);
      case 4:
        return fuzz::check(bytes, tessera::comm::decode_counts);
      default:
        return fuzz::check(bytes, tessera::comm::decode_wait);
    }
  });
  return 0;
}
