// The report's page in a real browser: no error, the numbers of its document, no horizontal
// scrolling.
#include "report/browser.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>

#include "profile/hand_records.hpp"
#include "profile/report_document.hpp"
#include "tessera/base/bytes.hpp"
#include "tessera/profile/html_report.hpp"
#include "tessera/profile/perfetto_trace.hpp"

namespace tessera::test::browser_test {
namespace {

using ::testing::HasSubstr;

class ReportPage : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string reason = Browser::missing();
    if (!reason.empty()) { GTEST_SKIP() << reason; }
  }

  /// The page of `document`; `script` runs at its end.
  [[nodiscard]] Loaded shown(const Json& document, const std::string& script = "",
                             int width = 1200) const {
    std::string page = html_report(document.dump());
    const std::size_t end = page.rfind("</body>");
    page.insert(end, "<script>" + script + "</script>");
    return browser_.load(page, width);
  }

 private:
  Browser browser_;
};

void expect_drawn(const Loaded& page) {
  EXPECT_EQ(page.console, "");
  EXPECT_NE(page.dom.find(R"(data-drawn="true")"), std::string::npos);
  EXPECT_TRUE(std::regex_search(page.dom, std::regex{R"(<div id="failure"[^>]*hidden)"}));
}

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

struct Cell {
  std::size_t bytes = 0;
  std::string text;
};

/// The cells of the rows of table `id`: by strategy and `key` (data-rank or data-ranks), by field.
std::map<std::string, std::map<std::string, Cell>> cells(const std::string& dom,
                                                         const std::string& key) {
  std::map<std::string, std::map<std::string, Cell>> found;
  const std::regex row{R"re(<tr data-strategy="([^"]*)" )re" + key +
                       R"re(="(\d+)"[^>]*>(.*?)</tr>)re"};
  const std::regex cell{R"re(<td[^>]*data-field="([^"]*)" data-bytes="(\d+)"[^>]*>([^<]*)</td>)re"};
  const std::sregex_iterator end;
  for (std::sregex_iterator r{dom.begin(), dom.end(), row}; r != end; ++r) {
    const std::string inside = (*r)[3];
    auto& fields = found[(*r)[1].str() + " " + (*r)[2].str()];
    for (std::sregex_iterator c{inside.begin(), inside.end(), cell}; c != end; ++c) {
      fields[(*c)[1]] = {std::stoull((*c)[2]), (*c)[3]};
    }
  }
  return found;
}

/// The numbers that the table must show for a rank: all except those of unused categories.
std::map<std::string, std::size_t> numbers_of(const Json& rank) {
  std::map<std::string, std::size_t> numbers;
  numbers["peak_bytes"] = rank["peak_bytes"];
  if (rank["planned_peak_bytes"].is_number()) {
    numbers["planned_peak_bytes"] = rank["planned_peak_bytes"];
  }
  for (const char* group : {"at_peak", "model_state_bytes"}) {
    for (const auto& [name, value] : rank[group].items()) {
      if (value != 0) { numbers[std::string{group} + "." + name] = value; }
    }
  }
  return numbers;
}

TEST_F(ReportPage, AComparisonsTableHasTheNumbersOfItsDocument) {
  const Json document = comparison_document(4, 300);
  const Loaded page = shown(document);
  expect_drawn(page);
  const auto table = cells(page.drawn, "data-rank");
  ASSERT_EQ(table.size(), 16U);
  for (const Json& strategy : document["strategies"]) {
    for (const Json& rank : strategy["ranks"]) {
      const std::string row = strategy["name"].get<std::string>() + " " + rank["rank"].dump();
      SCOPED_TRACE(row);
      const auto& fields = table.at(row);
      const auto numbers = numbers_of(rank);
      EXPECT_EQ(fields.size(), numbers.size());
      for (const auto& [name, bytes] : numbers) {
        ASSERT_EQ(fields.count(name), 1U) << name;
        EXPECT_EQ(fields.at(name).bytes, bytes) << name;
        EXPECT_EQ(fields.at(name).text, format_bytes(bytes)) << name;
      }
    }
  }
}

TEST_F(ReportPage, AComparisonIsDrawnInAllItsParts) {
  const Loaded page = shown(comparison_document(4, 300));
  for (const char* title : {"Memory of each rank", "Model state against theory", "One step",
                            "Losses and times", "All numbers"}) {
    EXPECT_TRUE(page.shows(fmt::format(">{}<", title)));
  }
  EXPECT_EQ(occurrences(page.drawn, " segment\""),
            16U * 7U);  // bars: ranks times categories in use
  EXPECT_EQ(occurrences(page.drawn, " area\""), 7U);
  EXPECT_TRUE(page.shows("bit-identical under all 4 strategies"));
}

TEST_F(ReportPage, TheoryCountsOnlyDeviceMemory) {
  Json document = comparison_document(4, 10);
  document.erase("timelines");
  const Loaded plain = shown(document);
  EXPECT_TRUE(plain.shows("Parameters, gradients and optimizer state: all of them on every rank"));
  EXPECT_TRUE(plain.shows("by the number of ranks. Lines are"));
  EXPECT_TRUE(plain.shows("Padding to multiples of 64 elements"));
  EXPECT_FALSE(plain.shows("host memory"));

  document["offload"] = "optimizer,activations";
  document["moments"] = "int8";
  for (Json& strategy : document["strategies"]) {
    const bool leaves = strategy["name"] == "zero2" || strategy["name"] == "zero3";
    for (Json& rank : strategy["ranks"]) {
      rank["model_state_bytes"]["optimizer"] = 0;
      if (leaves) { rank["model_state_bytes"]["gradients"] = 0; }
    }
  }
  const Loaded offloaded = shown(document);
  expect_drawn(offloaded);
  EXPECT_TRUE(offloaded.shows("Parameters and gradients on the device: all of them"));
  EXPECT_TRUE(
      offloaded.shows("Optimizer state is in host memory, and so are gradients once they "
                      "are reduced under zero2, zero3. Lines are"));
  EXPECT_TRUE(offloaded.shows("Padding to multiples of 256 elements"));

  document["strategies"].erase(0);  // ddp
  document["strategies"].erase(0);  // zero1
  document["strategies"][0]["name"] = "hybrid";
  document["shard_group"] = 2;
  const Loaded sharded = shown(document);
  EXPECT_TRUE(sharded.shows("Parameters on the device: all of them"));
  EXPECT_TRUE(sharded.shows("(hybrid by the 2 of a shard group). Optimizer"));
}

/// A comparison whose last strategy is called `name` and has these losses.
Json with_losses(const char* name, const Json& losses) {
  Json document = comparison_document(2, 10);
  document["strategies"].back()["name"] = name;
  document["strategies"].back()["losses"] = losses;
  document.erase("timelines");
  return document;
}

TEST_F(ReportPage, HybridsLossesAreShownByTheirDifference) {
  const Loaded page = shown(with_losses("hybrid", {5.5, 5.25, 4.7500001}));
  expect_drawn(page);
  EXPECT_TRUE(
      page.shows("Losses are bit-identical under 3 strategies: 5.5000 \u2192 4.7500 in 3 "
                 "steps; hybrid, which adds gradients group by group, is within 2.1e-8 of "
                 "ddp."));
  EXPECT_TRUE(page.shows("The same bits under all others; hybrid, which"));
  EXPECT_FALSE(page.shows("differ"));
  EXPECT_TRUE(shown(with_losses("hybrid", {5.5, 5.25, 4.75})).shows("under all 4 strategies"));
}

TEST_F(ReportPage, NamesAStrategyWithDifferingLossesAndTheStep) {
  const Loaded page = shown(with_losses("zero3", {5.5, 5.2500001, 4.75}));
  expect_drawn(page);
  EXPECT_TRUE(page.shows("Losses of ddp and zero3 differ from step 2 on (5.25 and 5.2500001)."));
  EXPECT_TRUE(page.shows("The strategies' losses differ."));
  EXPECT_TRUE(shown(with_losses("hybrid", {5.5, nullptr, 4.75})).shows("ddp and hybrid differ"));
}

TEST_F(ReportPage, TheMeshAndThePipelineAreDrawn) {
  Json document = comparison_document(8, 4);
  add_pipeline(document);
  const std::string script = R"script(
    const recorded = document.querySelectorAll(".pipe-action title")[0].textContent;
    for (const input of document.querySelectorAll("input[name=choice-shown]")) input.click();
    const played = document.querySelectorAll(".pipe-action title")[0].textContent;
    document.documentElement.dataset.shown = recorded + "; " + played;)script";
  const Loaded page = shown(document, script);
  expect_drawn(page);
  EXPECT_EQ(occurrences(page.drawn, "class=\"mesh-rank\""), 8U);
  EXPECT_TRUE(page.shows("rank 5: pipe 1, tensor 1, "));
  EXPECT_EQ(occurrences(page.drawn, "class=\"pipe-action\""), 8U);
  EXPECT_TRUE(page.shows("33.3 % on average"));
  EXPECT_NE(page.dom.find("stage 0, 0 \u00b5s to 1 \u00b5s; forward of micro-batch 0 on stage 0, "
                          "0 units to 1 units"),
            std::string::npos);
  EXPECT_FALSE(page.shows("Model state against theory")) << "parts are uneven";
}

TEST_F(ReportPage, SaysThatATimelineIsThinned) {
  const Loaded page = shown(comparison_document(4, 3000));
  expect_drawn(page);
  EXPECT_TRUE(page.shows("of 3\u202f000 changes are drawn"));
}

TEST_F(ReportPage, EveryControlWorksFromTheKeyboardAndReportsNoError) {
  // Reads each chart with the arrow keys, makes each choice, switches, copies; counts the texts
  // that the tip shows.
  const std::string script = R"script(
    let tips = 0;
    const tip = document.getElementById("tip");
    for (const control of document.querySelectorAll("input, button")) {
      if (control.textContent !== "Save as JSON") control.click();
      for (const chart of document.querySelectorAll("svg[tabindex]")) {
        for (const key of ["ArrowRight", "ArrowRight", "End", "Home", "ArrowLeft"]) {
          chart.dispatchEvent(new KeyboardEvent("keydown", { key, cancelable: true }));
          if (!tip.hidden && tip.textContent.length > 10) tips += 1;
        }
        chart.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", cancelable: true }));
        if (!tip.hidden) throw new Error("the tip stays");
      }
    }
    document.documentElement.dataset.tips = tips;)script";
  const Loaded page = shown(comparison_document(2, 30), script);
  expect_drawn(page);
  std::smatch tips;
  ASSERT_TRUE(std::regex_search(page.dom, tips, std::regex{R"re(data-tips="(\d+)")re"}));
  EXPECT_GT(std::stoi(tips[1]), 100);
}

TEST_F(ReportPage, FitsAPhonesWidth) {
  const std::string script =
      "document.documentElement.dataset.over = "
      "document.documentElement.scrollWidth - document.documentElement.clientWidth;";
  Json split = comparison_document(8, 4);
  add_pipeline(split);
  for (const Json& document : {comparison_document(4, 50), split, plan_document(),
                               training_document(), scale_document()}) {
    const Loaded page = shown(document, script, 390);
    expect_drawn(page);
    EXPECT_NE(page.dom.find(R"(data-over="0")"), std::string::npos) << document["kind"];
  }
}

TEST_F(ReportPage, APlanCountsEqualRanksAndSaysWhatFits) {
  const Loaded page = shown(plan_document());
  expect_drawn(page);
  EXPECT_TRUE(page.shows("data-count=\"1021\""));
  EXPECT_EQ(occurrences(page.drawn, "does not fit<"), 3U);
  EXPECT_EQ(occurrences(page.drawn, "\u2713 fits<"), 1U);
  EXPECT_TRUE(page.shows("budget " + format_bytes(500'000'000)));
  EXPECT_FALSE(page.shows("Losses and times"));
}

TEST_F(ReportPage, ATrainingRunHasItsLossesAndTimes) {
  const Loaded page = shown(training_document());
  expect_drawn(page);
  EXPECT_TRUE(page.shows("Loss over the steps"));
  EXPECT_TRUE(page.shows("Seconds of each step"));
}

TEST_F(ReportPage, AScaleHasEveryLargestModelPlannedAndMeasured) {
  const Json document = scale_document();
  const Loaded page = shown(document);
  expect_drawn(page);
  const auto table = cells(page.drawn, "data-ranks");
  ASSERT_EQ(table.size(), 10U);
  for (const Json& strategy : document["strategies"]) {
    for (const Json& entry : strategy["largest"]) {
      const auto& row = table.at(strategy["name"].get<std::string>() + " " + entry["ranks"].dump());
      EXPECT_EQ(row.at("peak_bytes").bytes, entry["peak_bytes"]);
      EXPECT_EQ(row.count("measured_peak_bytes"), entry["measured_peak_bytes"].is_null() ? 0U : 1U);
      EXPECT_TRUE(page.shows("data-value=\"" + entry["parameters"].dump() + "\""));
    }
  }
  EXPECT_EQ(occurrences(page.drawn, "hollow\""), 6U);  // two of five are measured, per strategy
}

TEST_F(ReportPage, StrangeNamesAndManyRanksAreDrawn) {
  Json document = comparison_document(1, 4);
  document["strategies"] = Json::array({document["strategies"][0]});
  document["strategies"][0]["name"] = R"(<b onmouseover="x">own & "odd"</b>)";
  Json& ranks = document["strategies"][0]["ranks"];
  for (int rank = 1; rank < 64; ++rank) {
    ranks.push_back(rank_memory(rank, 1'000'000 + 4096 * static_cast<std::size_t>(rank / 2)));
  }
  ranks[0]["at_peak"]["own category"] = 4096;
  document["ranks"] = 64;
  document.erase("timelines");
  const Loaded page = shown(document);
  expect_drawn(page);
  EXPECT_FALSE(page.shows("<b onmouseover"));
  EXPECT_TRUE(page.shows("own category"));
  EXPECT_EQ(cells(page.drawn, "data-rank").size(), 64U);
}

TEST_F(ReportPage, ItsDocumentCanBeSaved) {
  const std::string script = R"script(
    let saved = null;
    URL.createObjectURL = (blob) => { saved = blob; return "#"; };
    URL.revokeObjectURL = () => {};
    for (const button of document.querySelectorAll("button")) {
      if (button.textContent === "Save as JSON") button.click();
    }
    const same = saved && saved.type === "application/json" &&
      saved.size === new Blob([document.getElementById("document").textContent]).size;
    document.documentElement.dataset.saved = same;)script";
  const Loaded page = shown(scale_document(), script);
  expect_drawn(page);
  EXPECT_NE(page.dom.find(R"(data-saved="true")"), std::string::npos);
}

TEST_F(ReportPage, ADifferenceBetweenRanksIsNamed) {
  const Json document = comparison_document(4, 10);
  const Loaded page = shown(document);
  const Json& ranks = document["strategies"][3]["ranks"];
  EXPECT_TRUE(page.shows(fmt::format("rank 3; least {} (rank 0)",
                                     format_bytes(ranks[0]["peak_bytes"].get<std::size_t>()))));
}

// The rules of the format for viewers: processes and threads named before use, times in order on
// each thread, spans that nest or do not overlap, numeric counters.
TEST_F(ReportPage, ATraceLoads) {
  std::string trace = perfetto_trace({{0, two_steps()}, {1, two_steps()}});
  ASSERT_EQ(trace.find('<'), std::string::npos);
  const std::string script = R"script(
    const trace = JSON.parse(document.getElementById("trace").textContent);
    const counted = { M: 0, X: 0, i: 0, C: 0 };
    const named = new Set();
    const open = new Map();
    for (const event of trace.traceEvents) {
      counted[event.ph] += 1;
      const thread = event.pid + ":" + event.tid;
      if (event.ph === "M") { named.add(event.name + thread); continue; }
      if (!Number.isFinite(event.ts) || event.ts < 0) throw new Error("no time");
      if (event.ph === "C") {
        if (!Object.values(event.args).every(Number.isFinite)) throw new Error("no number");
        continue;
      }
      if (!named.has("thread_name" + thread)) throw new Error("a thread without a name");
      if (event.ph !== "X") continue;
      const ends = open.get(thread) || [];
      while (ends.length > 0 && ends[ends.length - 1] <= event.ts) ends.pop();
      if (ends.length > 0 && ends[ends.length - 1] < event.ts + event.dur) throw new Error("crossing");
      open.set(thread, [...ends, event.ts + event.dur]);
    }
    document.documentElement.dataset.counted = Object.values(counted).join(" ");)script";
  const Loaded page = Browser{}.load(
      fmt::format("<!DOCTYPE html><meta charset=utf-8><main id=report></main>"
                  "<script type='application/json' id='trace'>{}</script><script>{}</script>",
                  trace, script));
  EXPECT_EQ(page.console, "");
  // Per rank: a process and four threads of two events each, ten spans, ten issues, ten counts.
  EXPECT_NE(page.dom.find(R"(data-counted="20 20 20 20")"), std::string::npos);
}

TEST_F(ReportPage, SaysWhatToDoWithoutJavaScript) {
  const std::string page = html_report(scale_document().dump());
  EXPECT_THAT(page, HasSubstr("Allow\n    JavaScript for this file and load it again"));
}

}  // namespace
}  // namespace tessera::test::browser_test
