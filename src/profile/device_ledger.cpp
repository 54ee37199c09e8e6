#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "profile/exchange_text.hpp"
#include "profile/ledger_text.hpp"
#include "tessera/base/error.hpp"
#include "tessera/profile/ledger.hpp"

namespace tessera {
namespace {

std::string_view whose(DeviceUse::Of of) {
  switch (of) {
    case DeviceUse::Of::process:
      return "in use by this job, as NVML counts";
    case DeviceUse::Of::newcomers:
      return "in use by all, less what was in use when the job started";
    case DeviceUse::Of::everybody:
      return "in use by all; context includes what others held when the job started";
  }
  return "";
}

/// What two processes together use of one device.
DeviceUse together(const DeviceUse& a, const DeviceUse& b) {
  DeviceUse both{a.id,
                 std::max(a.of, b.of),
                 0,
                 a.context_bytes + b.context_bytes,
                 a.library_bytes + b.library_bytes,
                 a.rounding_bytes + b.rounding_bytes,
                 a.communicated.empty() ? b.communicated : a.communicated};
  if (both.of == DeviceUse::Of::process) {
    both.used_bytes = a.used_bytes + b.used_bytes;
  } else {
    // Each has seen the whole device; the first to start found the least in use.
    both.used_bytes = std::max(a.used_bytes, b.used_bytes);
  }
  if (both.of == DeviceUse::Of::everybody) {
    both.context_bytes = std::min(a.context_bytes, b.context_bytes);
  }
  return both;
}

std::string to_text(World& world) {
  profile::TextWriter mine;
  const DeviceUse use = *use_of(world.device());
  mine.add(static_cast<std::uint64_t>(world.process().ranks));
  mine.add(static_cast<std::uint64_t>(use.of));
  mine.add(use.used_bytes);
  mine.add(use.context_bytes);
  mine.add(use.library_bytes);
  mine.add(use.rounding_bytes);
  mine.add(std::string_view{use.communicated});
  mine.add(world.memory().report().live);
  return mine.text();
}

/// Adds a rank's report to the ledger of its device. `is_first`: the first rank of its process
/// there.
void add(DeviceLedger& ledger, int rank, const std::string& text, bool is_first) {
  profile::TextReader reader{text};
  (void)reader.number();
  DeviceUse use;
  use.of = static_cast<DeviceUse::Of>(reader.number());
  use.used_bytes = reader.number();
  use.context_bytes = reader.number();
  use.library_bytes = reader.number();
  use.rounding_bytes = reader.number();
  use.communicated = reader.text();
  const CategoryBytes counted = reader.category_bytes();
  for (std::size_t c = 0; c < kCategories; ++c) {
    ledger.counted[static_cast<Category>(c)] += counted[static_cast<Category>(c)];
  }
  if (ledger.ranks.empty()) {
    use.id = ledger.use.id;
    ledger.use = use;
  } else if (is_first) {
    ledger.use = together(ledger.use, use);
  }
  ledger.ranks.push_back(rank);
}

}  // namespace

std::int64_t DeviceLedger::unattributed() const noexcept {
  const std::size_t known = use.context_bytes + use.library_bytes + use.rounding_bytes +
                            counted.total() - counted[Category::unattributed];
  return static_cast<std::int64_t>(use.used_bytes) - static_cast<std::int64_t>(known);
}

std::vector<LedgerRow> DeviceLedger::rows() const {
  std::vector<LedgerRow> all;
  profile::add_row(all, to_string(Category::context),
                   use.context_bytes + counted[Category::context]);
  profile::add_category_rows(all, counted);
  profile::add_row(all, "libraries", use.library_bytes);
  profile::add_row(all, "rounding", use.rounding_bytes);
  all.push_back({std::string{to_string(Category::unattributed)}, unattributed()});
  return all;
}

std::string DeviceLedger::text() const {
  std::string text = fmt::format("{}, of {} {}\n", device, ranks.size() == 1 ? "rank" : "ranks",
                                 fmt::join(ranks, ", "));
  for (const LedgerRow& row : rows()) { text += profile::ledger_line(row, use.used_bytes); }
  text += profile::ledger_line({"used", static_cast<std::int64_t>(use.used_bytes)}, use.used_bytes);
  text += fmt::format("({})\n", whose(use.of));
  if (!use.communicated.empty()) { text += fmt::format("({})\n", use.communicated); }
  return text;
}

std::vector<DeviceLedger> gather_device_ledgers(World& world) {
  expects(
      world.process().ranks > 0,
      "gather_device_ledgers: a simulated rank holds no memory on a device; gather_memory tells "
      "what it would hold");
  const std::optional<DeviceUse> own = use_of(world.device());
  if (!own) { return {}; }
  const std::vector<std::string> ids = world.exchange(own->id);
  const std::vector<std::string> names = world.exchange(world.device().name());
  world.compute_stream().wait();
  const std::vector<std::string> texts = world.exchange(to_text(world));
  std::vector<DeviceLedger> ledgers;
  std::vector<std::string> of;  // by ledger: the id of its device
  int process = 0;              // the first rank of the process of `rank`
  for (int rank = 0; rank < world.size(); ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    profile::TextReader reader{texts[r]};
    if (rank >= process + static_cast<int>(reader.number())) { process = rank; }
    const auto found = std::ranges::find(of, ids[r]);
    const auto at = static_cast<std::size_t>(found - of.begin());
    if (found == of.end()) {
      of.push_back(ids[r]);
      DeviceLedger& made = ledgers.emplace_back();
      made.device = names[r];
      made.use.id = ids[r];
    }
    DeviceLedger& ledger = ledgers[at];
    add(ledger, rank, texts[r], ledger.ranks.empty() || ledger.ranks.back() < process);
  }
  return ledgers;
}

}  // namespace tessera
