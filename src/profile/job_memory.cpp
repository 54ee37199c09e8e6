#include "tessera/profile/job_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>

#include "profile/exchange_text.hpp"
#include "tessera/base/bytes.hpp"
#include "tessera/base/error.hpp"

namespace tessera {
namespace {

void add_moment(profile::TextWriter& writer, const trace::Moment& moment) {
  writer.add(static_cast<std::uint64_t>(moment.phase));
  writer.add(std::string_view{moment.unit});
  writer.add(static_cast<std::uint64_t>(moment.step));
}

trace::Moment moment_from(profile::TextReader& reader) {
  trace::Moment moment;
  const std::uint64_t phase = reader.number();
  expects(
      phase <= static_cast<std::uint64_t>(trace::Phase::evaluation),
      "gathering memory: a rank reported an unknown phase; start the same program on all ranks");
  moment.phase = static_cast<trace::Phase>(phase);
  moment.unit = reader.text();
  moment.step = static_cast<std::int64_t>(reader.number());
  return moment;
}

std::string text_of(const MemoryReport& report) {
  profile::TextWriter writer;
  writer.add(report.live);
  writer.add(report.at_peak);
  writer.add(report.peak_bytes);
  add_moment(writer, report.peak_at);
  writer.add(report.allocations);
  writer.add(report.in_use);
  writer.add(report.most_in_use);
  writer.add(report.most_in_use_bytes);
  add_moment(writer, report.most_in_use_at);
  for (const PhaseMemory& phase : report.by_phase) {
    writer.add(phase.live_bytes);
    writer.add(phase.in_use_bytes);
  }
  return writer.text();
}

MemoryReport report_from(const std::string& text) {
  profile::TextReader reader{text};
  MemoryReport report;
  report.live = reader.category_bytes();
  report.at_peak = reader.category_bytes();
  report.peak_bytes = reader.number();
  report.peak_at = moment_from(reader);
  report.allocations = reader.number();
  report.in_use = reader.category_bytes();
  report.most_in_use = reader.category_bytes();
  report.most_in_use_bytes = reader.number();
  report.most_in_use_at = moment_from(reader);
  for (PhaseMemory& phase : report.by_phase) {
    phase.live_bytes = reader.number();
    phase.in_use_bytes = reader.number();
  }
  return report;
}

Skew skew_of(const std::vector<std::size_t>& bytes) {
  Skew skew;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto rank = static_cast<int>(i);
    const std::size_t here = bytes[i];
    if (i == 0 || here < skew.least_bytes) { skew.least_bytes = here, skew.least_rank = rank; }
    if (i == 0 || here > skew.most_bytes) { skew.most_bytes = here, skew.most_rank = rank; }
  }
  return skew;
}

Skew skew_of(const std::vector<MemoryReport>& ranks,
             const std::function<std::size_t(const MemoryReport&)>& bytes) {
  std::vector<std::size_t> all;
  for (const MemoryReport& rank : ranks) { all.push_back(bytes(rank)); }
  return skew_of(all);
}

/// Neighbouring ranks with equal memory.
struct RankSpan {
  std::size_t first;
  std::size_t last;
};

bool alike(const MemoryReport& a, const MemoryReport& b) {
  return a.live == b.live && a.at_peak == b.at_peak && a.most_in_use == b.most_in_use &&
         a.by_phase == b.by_phase;
}

std::vector<RankSpan> spans_of(const std::vector<MemoryReport>& ranks) {
  std::vector<RankSpan> spans;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (rank > 0 && alike(ranks[rank - 1], ranks[rank])) {
      spans.back().last = rank;
    } else {
      spans.push_back({rank, rank});
    }
  }
  return spans;
}

std::string name_of(RankSpan span) {
  return span.first == span.last ? fmt::format("{}", span.first)
                                 : fmt::format("{}-{}", span.first, span.last);
}

// For "524288-1048575", in a job of the largest size.
constexpr int kNameWidth = 14;

using Cells = std::vector<std::string>;

std::string line(const std::string& name, const Cells& cells) {
  std::string text = fmt::format("{:<{}}", name, kNameWidth);
  for (const std::string& cell : cells) { text += fmt::format(" {:>8}", cell); }
  return text + "\n";
}

/// Every job sets up and trains; evaluation is shown only if there was one.
std::vector<trace::Phase> shown_phases(const std::vector<MemoryReport>& ranks) {
  using enum trace::Phase;
  std::vector<trace::Phase> shown{setup, forward, backward, update};
  const auto evaluated = [](const MemoryReport& report) {
    return report.by_phase[static_cast<std::size_t>(evaluation)] != PhaseMemory{};
  };
  if (std::ranges::any_of(ranks, evaluated)) { shown.push_back(evaluation); }
  return shown;
}

Cells phase_names(const std::vector<trace::Phase>& phases) {
  Cells cells{"live", "peak"};
  for (const trace::Phase phase : phases) {
    cells.emplace_back(phase == trace::Phase::evaluation ? "eval" : trace::to_string(phase));
  }
  return cells;
}

Cells phase_cells(const MemoryReport& report, const std::vector<trace::Phase>& phases) {
  Cells cells{format_bytes(report.live.total()), format_bytes(report.peak_bytes)};
  for (const trace::Phase phase : phases) {
    cells.push_back(format_bytes(report.by_phase[static_cast<std::size_t>(phase)].in_use_bytes));
  }
  return cells;
}

constexpr std::array kShown = {Category::parameters, Category::gradients,   Category::optimizer,
                               Category::gather,     Category::reduce,      Category::activations,
                               Category::workspace,  Category::communicator};
const Cells kShownNames = {"params", "grads", "optim", "gather", "reduce",
                           "activ",  "work",  "comm",  "other"};

Cells category_cells(const CategoryBytes& bytes) {
  Cells cells;
  for (const Category category : kShown) { cells.push_back(format_bytes(bytes[category])); }
  cells.push_back(format_bytes(bytes[Category::context] + bytes[Category::unattributed]));
  return cells;
}

std::string moment_text(const trace::Moment& moment) {
  if (moment.phase == trace::Phase::setup) { return "before the first step"; }
  return fmt::format("{}{}{}, step {}", trace::to_string(moment.phase),
                     moment.unit.empty() ? "" : " of ", moment.unit, moment.step + 1);
}

std::string skew_line(const char* what, const Skew& skew) {
  if (skew.least_bytes == skew.most_bytes) {
    return fmt::format("{}: {} on every rank\n", what, format_bytes(skew.most_bytes));
  }
  return fmt::format("{}: from {} on rank {} to {} on rank {}\n", what,
                     format_bytes(skew.least_bytes), skew.least_rank, format_bytes(skew.most_bytes),
                     skew.most_rank);
}

std::string shortened(std::string text) {
  constexpr std::size_t kColumns = 100;
  if (text.size() > kColumns) { text.replace(kColumns - 3, std::string::npos, "..."); }
  return text + "\n";
}

}  // namespace

Skew JobMemory::live() const {
  return skew_of(ranks, [](const MemoryReport& report) { return report.live.total(); });
}

Skew JobMemory::peak() const {
  return skew_of(ranks, [](const MemoryReport& report) { return report.peak_bytes; });
}

Skew JobMemory::most_in_use() const {
  return skew_of(ranks, [](const MemoryReport& report) { return report.most_in_use_bytes; });
}

std::string JobMemory::text() const {
  if (ranks.empty()) { return {}; }
  const std::vector<RankSpan> spans = spans_of(ranks);
  std::string text = fmt::format("{:>{}}\n", "in use at most, by phase", kNameWidth + 6 * 9);
  const std::vector<trace::Phase> phases = shown_phases(ranks);
  text += line("rank", phase_names(phases));
  for (const RankSpan span : spans) {
    text += line(name_of(span), phase_cells(ranks[span.first], phases));
  }
  text += '\n';
  text += line("at the peak", kShownNames);
  for (const RankSpan span : spans) {
    text += line(name_of(span), category_cells(ranks[span.first].at_peak));
  }
  const Skew used = most_in_use();
  const MemoryReport& most = ranks[static_cast<std::size_t>(used.most_rank)];
  text += '\n';
  text += skew_line("live", live());
  text += skew_line("peak", peak());
  if (std::ranges::any_of(host_peak_bytes, [](std::size_t bytes) { return bytes > 0; })) {
    text += skew_line("host pool at its peak", skew_of(host_peak_bytes));
  }
  return text +
         shortened(fmt::format("in use at most: {} on rank {} ({})", format_bytes(used.most_bytes),
                               used.most_rank, moment_text(most.most_in_use_at)));
}

JobMemory gather_memory(World& world) {
  JobMemory memory;
  for (const std::string& text : world.exchange(text_of(world.memory().report()))) {
    memory.ranks.push_back(report_from(text));
  }
  profile::TextWriter host;
  host.add(world.host_memory().report().peak_bytes);
  for (const std::string& text : world.exchange(host.text())) {
    memory.host_peak_bytes.push_back(profile::TextReader{text}.number());
  }
  return memory;
}

}  // namespace tessera
