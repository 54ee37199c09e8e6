// Parts of the command that can be tested without running it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "comparison.hpp"
#include "option_table.hpp"
#include "option_values.hpp"
#include "progress.hpp"
#include "table.hpp"
#include "tessera/base/error.hpp"

namespace tessera::tools {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

StepRecord record_of(std::int64_t step) {
  StepRecord record;
  record.report.step = step;
  record.report.loss = 2.5;
  record.tokens_per_second = 1000;
  record.peak_bytes = {1 << 20, 2 << 20};
  return record;
}

std::string shown(Progress::Output output, std::int64_t steps) {
  const std::unique_ptr<std::FILE, CloseFile> file{std::tmpfile()};
  {
    Progress progress{file.get(), output, "run ", steps};
    for (std::int64_t step = 1; step <= steps; ++step) { progress.show(record_of(step)); }
  }
  std::rewind(file.get());
  std::string text;
  for (int c = std::fgetc(file.get()); c != EOF; c = std::fgetc(file.get())) {
    text += static_cast<char>(c);
  }
  return text;
}

TEST(ProgressTest, LinesComeEveryTenthOfTheRun) {
  const std::string text = shown(Progress::Output::lines, 100);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 11);  // the first, and ten tenths
  EXPECT_NE(text.find("run step 100/100  loss 2.5000  1000 tokens/s  peak 2.00 MiB"),
            std::string::npos)
      << text;
}

TEST(ProgressTest, ABarIsDrawnOverAndLeftOnANewLine) {
  const std::string text = shown(Progress::Output::terminal, 2);
  EXPECT_NE(text.find("\r\033[Krun [======= "), std::string::npos) << text;
  EXPECT_NE(text.find("=] 2/2  loss"), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_EQ(text.back(), '\n');
}

TEST(ProgressTest, TimesReadWell) {
  EXPECT_EQ(format_time(0), "0:00");
  EXPECT_EQ(format_time(67.4), "1:07");
  EXPECT_EQ(format_time(3 * 3600 + 5 * 60), "3:05:00");
}

TEST(TableTest, AlignsColumns) {
  Table table{{"name", "n"}};
  table.add({"a", "10"});
  table.add({"longer", "7"});
  EXPECT_EQ(table.text(), "name     n\n----------\na       10\nlonger   7\n");
  EXPECT_THROW(table.add({"one cell"}), ContractError);
}

TEST(OptionTest, EveryDefaultIsAValueThatTheOptionTakes) {
  for (const OptionRow& row : option_table()) {
    if (row.preset.empty()) { continue; }
    Settings settings;
    EXPECT_NO_THROW(row.apply(settings, std::string{row.preset})) << row.name;
  }
}

TEST(OptionTest, HelpNamesEveryOptionInHundredColumns) {
  for (const std::string command : {"train", "compare"}) {
    const std::string help = help_text(command);
    for (const OptionRow& row : option_table()) {
      if (!applies_to(row, command)) { continue; }
      EXPECT_NE(help.find(row.name), std::string::npos) << row.name;
    }
    for (std::size_t begin = 0; begin < help.size();) {
      const std::size_t end = help.find('\n', begin);
      EXPECT_LE(end - begin, 100U) << help.substr(begin, end - begin);
      begin = end + 1;
    }
  }
}

TEST(OptionTest, NearestNamesAreFound) {
  const std::vector<std::string> known = {"--batch", "--beta1", "--steps"};
  EXPECT_EQ(nearest("--bathc", known), "--batch");
  EXPECT_EQ(nearest("--step", known), "--steps");
  EXPECT_EQ(nearest("--something-else", known), "");
}

TEST(RunResultTest, MedianLeavesOutTheFirstTwoSteps) {
  RunResult result;
  for (const double seconds : {9.0, 8.0, 1.0, 4.0, 2.0, 3.0}) {
    StepRecord record;
    record.seconds = seconds;
    result.steps.push_back(record);
  }
  EXPECT_DOUBLE_EQ(result.seconds_per_step(), 2.5);
  result.steps.resize(2);
  EXPECT_DOUBLE_EQ(result.seconds_per_step(), 8.5);
}

TEST(ComparisonTest, ALossThatDiffersInItsLastBitIsNamed) {
  std::vector<RunResult> results(2);
  results[0].strategy = Strategy::ddp;
  results[1].strategy = Strategy::zero3;
  for (std::int64_t step = 1; step <= 3; ++step) {
    results[0].steps.push_back(record_of(step));
    results[1].steps.push_back(record_of(step));
  }
  EXPECT_NE(compare_losses(results).find("bit-identical"), std::string::npos);
  results[1].steps[1].report.loss = std::nextafter(2.5, 3.0);
  EXPECT_NE(compare_losses(results).find("ddp and zero3 differ from step 2"), std::string::npos);
}

}  // namespace
}  // namespace tessera::tools
