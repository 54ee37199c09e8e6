// Texts that ranks exchange: calls, splits, numbers, cores, ledgers, batches. The first byte
// selects the kind; the rest is one text per rank.
#include <vector>

#include "comm/batch_code.hpp"
#include "comm/batch_text.hpp"
#include "comm/control/control_text.hpp"
#include "comm/rank_split.hpp"
#include "fuzz/fuzz.hpp"
#include "profile/exchange_text.hpp"
#include "world/host_cores.hpp"

namespace tessera::fuzz {
namespace {

std::string same(int rank) {
  return "rank " + std::to_string(rank);
}

std::vector<std::string> texts_of(Input& input) {
  std::vector<std::string> texts;
  do { texts.emplace_back(input.text()); } while (!input.empty());
  return texts;
}

void check_split(const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    if (text == texts.front()) { continue; }
    is_message(comm::first_difference(texts, same));
    return;
  }
}

void check_cores(const std::string& text) {
  const world::HostCores cores = world::decode_cores(text);
  const world::HostCores again = world::decode_cores(encode(cores));
  holds(again.machine == cores.machine && again.cores == cores.cores,
        "cores that were written read as they were");
}

void check_ledger(const std::string& text) {
  profile::TextReader reader{text};
  const std::uint64_t number = reader.number();
  const std::string name = reader.text();
  profile::TextWriter writer;
  writer.add(number);
  writer.add(std::string_view{name});
  profile::TextReader again{writer.text()};
  holds(again.number() == number && again.text() == name, "a ledger reads as it was written");
  (void)reader.category_bytes();
}

void check_batches(const std::vector<std::string>& texts) {
  std::vector<Batch> batches;
  std::vector<const Batch*> all;
  for (const std::string& text : texts) { batches.push_back(comm::decode(text)); }
  for (std::size_t i = 0; i < texts.size(); ++i) {
    std::string code;
    comm::encode(batches[i], code);
    holds(code == texts[i], "a batch has one code");
    is_message(comm::describe(batches[i]));
    all.push_back(&batches[i]);
  }
  (void)comm::first_difference(all, same);
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  fuzz::Input input{data, size};
  const int which = input.byte() % 6;
  const std::vector<std::string> texts = fuzz::texts_of(input);
  fuzz::refuses<CommError, ContractError>([&] {
    switch (which) {
      case 0:
        fuzz::holds(comm::unseal(texts, fuzz::same).size() == texts.size(),
                    "every rank has a text");
        return;
      case 1:
        return fuzz::check_split(texts);
      case 2:
        return (void)comm::agree_on_highest(
            3, "x", [&](const std::string&) { return texts; }, fuzz::same);
      case 3:
        return fuzz::check_cores(texts.front());
      case 4:
        return fuzz::check_ledger(texts.front());
      default:
        return fuzz::check_batches(texts);
    }
  });
  return 0;
}
