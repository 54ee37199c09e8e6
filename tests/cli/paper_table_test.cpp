// The model states that the ZeRO paper prints (Rajbhandari et al., arXiv:1910.02054, table 1).
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tools/options/command_line.hpp"
#include "tools/plan/planner.hpp"

namespace tessera::tools::paper_table_test {
namespace {

/// Gigabytes (1e9) per rank, as printed.
struct Row {
  const char* parameters;
  int ranks;
  std::vector<const char*> printed;  ///< P_os, P_os+g, P_os+g+p: zero1, zero2, zero3
};

const std::vector<Row> kTable = {
    {"7.5e9", 1, {"120", "120", "120"}},      {"7.5e9", 4, {"52.5", "41.3", "30"}},
    {"7.5e9", 16, {"35.6", "21.6", "7.5"}},   {"7.5e9", 64, {"31.4", "16.6", "1.88"}},
    {"7.5e9", 256, {"30.4", "15.4", "0.47"}}, {"7.5e9", 1024, {"30.1", "15.1", "0.12"}},
    {"128e9", 1, {"2048", "2048", "2048"}},   {"128e9", 4, {"896", "704", "512"}},
    {"128e9", 16, {"608", "368", "128"}},     {"128e9", 64, {"536", "284", "32"}},
    {"128e9", 256, {"518", "263", "8"}},      {"128e9", 1024, {"513", "257", "2"}},
    {"1e12", 1, {"16000", "16000", "16000"}}, {"1e12", 4, {"7000", "5500", "4000"}},
    {"1e12", 16, {"4750", "2875", "1000"}},   {"1e12", 64, {"4187", "2218", "250"}},
    {"1e12", 256, {"4046", "2054", "62.5"}},  {"1e12", 1024, {"4011", "2013", "15.6"}},
};

// fp16 parameters and gradients, fp32 master weights and two moments.
double bytes_a_parameter(Strategy strategy, double ranks) {
  switch (strategy) {
    case Strategy::zero1:
      return 2 + 2 + 12 / ranks;
    case Strategy::zero2:
      return 2 + (2 + 12) / ranks;
    default:
      return 16 / ranks;
  }
}

/// One unit in the last printed place.
double last_place(const std::string& text) {
  const std::size_t point = text.find('.');
  return point == std::string::npos ? 1
                                    : std::pow(10.0, -static_cast<double>(text.size() - point - 1));
}

Settings settings_of(const Row& row) {
  const std::vector<const char*> words = {"plan", "--params",         row.parameters, "--precision",
                                          "fp16", "--gradient-dtype", "fp16"};
  return parse_command_line(words).settings;
}

double planned_gigabytes(const Settings& settings, Strategy strategy, int ranks) {
  const auto plan = plan_stack(settings, *settings.params, strategy, ranks);
  EXPECT_EQ(plan.size(), 1U);
  const ModelStateBytes& state = plan[0].state;
  return static_cast<double>(state.parameters + state.gradients + state.optimizer) / 1e9;
}

TEST(PaperTable, MatchesThePlan) {
  for (const Row& row : kTable) {
    const Settings settings = settings_of(row);
    for (std::size_t i = 0; i < 3; ++i) {
      const Strategy strategy = std::vector{Strategy::zero1, Strategy::zero2, Strategy::zero3}[i];
      SCOPED_TRACE(std::string{row.parameters} + ", " + std::to_string(row.ranks) + " ranks, " +
                   std::string{to_string(strategy)});
      const double planned = planned_gigabytes(settings, strategy, row.ranks);
      const double formula =
          static_cast<double>(*settings.params) / 1e9 * bytes_a_parameter(strategy, row.ranks);
      // Shards are padded to multiples of 64 elements, so plans are never less, and little more.
      EXPECT_GE(planned, formula * (1 - 1e-12));
      EXPECT_LT(planned, formula * 1.001);
      // The paper rounds some of its numbers and truncates others.
      const double printed = std::stod(row.printed[i]);
      const double place = last_place(row.printed[i]);
      EXPECT_GE(planned, printed - place / 2);
      EXPECT_LT(planned, printed + place);
    }
  }
}

TEST(PaperTable, PlainDataParallelismHoldsAllOfIt) {
  const Settings settings = settings_of(kTable.front());
  for (const int ranks : {1, 64, 1024}) {
    EXPECT_NEAR(planned_gigabytes(settings, Strategy::ddp, ranks), 120, 120 * 1e-3);
  }
}

}  // namespace
}  // namespace tessera::tools::paper_table_test
