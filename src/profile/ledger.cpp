#include "tessera/profile/ledger.hpp"

#include <fmt/format.h>

#include "base/resident.hpp"
#include "profile/exchange_text.hpp"
#include "profile/ledger_text.hpp"
#include "tessera/base/error.hpp"

namespace tessera {
namespace {

/// Counts both pools together, which the system cannot distinguish; on a GPU only the host pool.
CategoryBytes counted_by(World& world) {
  const bool apart = world.device().memory().has_value();
  CategoryBytes counted = apart ? CategoryBytes{} : world.memory().report().live;
  const CategoryBytes host = world.host_memory().report().live;
  for (std::size_t c = 0; c < kCategories; ++c) {
    counted[static_cast<Category>(c)] += host[static_cast<Category>(c)];
  }
  return counted;
}

/// One ledger a process, without resident memory.
std::vector<ProcessLedger> counted_by_process(World& world) {
  profile::TextWriter mine;
  mine.add(static_cast<std::uint64_t>(world.process().ranks));
  mine.add(world.process().context_bytes);
  mine.add(world.process().mpi_bytes);
  mine.add(counted_by(world));
  std::vector<ProcessLedger> processes;
  int rank = 0;
  for (const std::string& text : world.exchange(mine.text())) {
    profile::TextReader reader{text};
    const auto ranks = static_cast<int>(reader.number());
    const std::size_t context = reader.number();
    const std::size_t mpi = reader.number();
    if (processes.empty() || rank >= processes.back().first_rank + processes.back().start.ranks) {
      processes.push_back({.first_rank = rank, .start = {ranks, context, mpi}});
    }
    const CategoryBytes counted = reader.category_bytes();
    for (std::size_t c = 0; c < kCategories; ++c) {
      processes.back().counted[static_cast<Category>(c)] += counted[static_cast<Category>(c)];
    }
    ++rank;
  }
  return processes;
}

}  // namespace

std::int64_t ProcessLedger::unattributed() const noexcept {
  const std::size_t known =
      start.context_bytes + start.mpi_bytes + counted.total() - counted[Category::unattributed];
  return static_cast<std::int64_t>(resident_bytes) - static_cast<std::int64_t>(known);
}

std::vector<LedgerRow> ProcessLedger::rows() const {
  std::vector<LedgerRow> all;
  profile::add_row(all, to_string(Category::context),
                   start.context_bytes + counted[Category::context]);
  profile::add_row(all, "communicator start", start.mpi_bytes);
  profile::add_category_rows(all, counted);
  all.push_back({std::string{to_string(Category::unattributed)}, unattributed()});
  return all;
}

std::string ProcessLedger::text() const {
  std::string text =
      start.ranks == 1
          ? fmt::format("the process of rank {}\n", first_rank)
          : fmt::format("the process of ranks {} to {}, which are threads: their sum\n", first_rank,
                        first_rank + start.ranks - 1);
  for (const LedgerRow& row : rows()) { text += profile::ledger_line(row, resident_bytes); }
  return text + profile::ledger_line({"resident", static_cast<std::int64_t>(resident_bytes)},
                                     resident_bytes);
}

std::vector<ProcessLedger> gather_ledgers(World& world) {
  expects(world.process().ranks > 0,
          "gather_ledgers: a simulated rank holds no memory that the system could count; "
          "gather_memory tells what it would hold");
  std::vector<ProcessLedger> processes = counted_by_process(world);
  // Read while the ranks of this process are here, so that none of them allocates.
  profile::TextWriter mine;
  mine.add(tessera::resident_bytes());
  const std::vector<std::string> resident = world.exchange(mine.text());
  for (ProcessLedger& process : processes) {
    profile::TextReader reader{resident[static_cast<std::size_t>(process.first_rank)]};
    process.resident_bytes = reader.number();
    if (process.resident_bytes == 0) {
      throw Error{
          fmt::format("the memory of the process of rank {} is unknown: neither "
                      "/proc/self/smaps_rollup nor /proc/self/statm can be read there",
                      process.first_rank)};
    }
  }
  return processes;
}

}  // namespace tessera
