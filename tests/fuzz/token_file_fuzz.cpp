// A file of tokens, without or with a header of llm.c's, and the same bytes as text.
#include <algorithm>
#include <vector>

#include "fuzz/fuzz.hpp"
#include "tessera/data/token_source.hpp"

namespace tessera::fuzz {
namespace {

void read_all(const TokenSource& source, std::int32_t most) {
  holds(source.size() > 0, "a source that was opened has tokens");
  std::vector<std::int32_t> all(static_cast<std::size_t>(source.size()));
  source.read(0, all);
  holds(std::ranges::all_of(all, [=](std::int32_t token) { return token >= 0 && token <= most; }),
        "tokens are of their width");
  std::int32_t last = -1;
  source.read(source.size() - 1, {&last, 1});
  holds(last == all.back(), "a token is the same wherever a read begins");
  holds(!refuses<ConfigError>([&] { check_tokens(source, std::int64_t{most} + 1); }),
        "no token is outside its width");
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  static fuzz::MemoryFile file;
  file.write(fuzz::text_of(data, size));
  for (const TokenFormat format : {TokenFormat::detect, TokenFormat::uint32}) {
    fuzz::refuses<FormatError, ConfigError>(
        [&] { fuzz::read_all(*open_tokens(file.path(), format), INT32_MAX); });
  }
  fuzz::refuses<FormatError, ConfigError>(
      [&] { fuzz::read_all(*open_tokens(file.path(), TokenFormat::uint16), 0xFFFF); });
  fuzz::refuses<FormatError, ConfigError>([&] { fuzz::read_all(*open_bytes(file.path()), 0xFF); });
  return 0;
}
