#include "tessera/profile/html_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <regex>

#include "profile/report_document.hpp"
#include "tessera/base/error.hpp"

namespace tessera::html_report_test {
namespace {

using test::Json;
using testing::HasSubstr;

/// The document within the page, parsed as the browser does.
Json embedded(const std::string& page) {
  const std::string begin = R"(<script type="application/json" id="document">)";
  const std::size_t from = page.find(begin);
  EXPECT_NE(from, std::string::npos);
  const std::size_t first = from + begin.size();
  return Json::parse(page.substr(first, page.find("</script>", first) - first));
}

std::string refusal(const std::string& json) {
  try {
    (void)html_report(json);
  } catch (const FormatError& error) { return error.what(); }
  return "not refused";
}

TEST(HtmlReport, HoldsTheDocument) {
  const Json document = test::comparison_document(4, 50);
  EXPECT_EQ(embedded(html_report(document.dump())), document);
  EXPECT_EQ(embedded(html_report(test::scale_document().dump(2))), test::scale_document());
}

TEST(HtmlReport, NoStringEndsTheElementItStandsIn) {
  Json document = test::comparison_document(1, 4);
  document["command"] = R"(tessera </script><script>alert("1")</script><!-- <SCRIPT> /* script */)";
  const std::string page = html_report(document.dump());
  EXPECT_EQ(embedded(page), document);
  EXPECT_EQ(page.find("alert("), page.find(R"(alert(\")"));
  EXPECT_EQ(page.find("</script>\\u003c"), std::string::npos);
  // Only the closing tags of the page itself.
  const std::string plain = html_report(test::comparison_document(1, 4).dump());
  const auto ends = [](const std::string& text) {
    const std::regex end{"</script>"};
    return std::distance(std::sregex_iterator{text.begin(), text.end(), end}, {});
  };
  EXPECT_EQ(ends(page), ends(plain));
}

TEST(HtmlReport, NeedsNothingElse) {
  const std::string page = html_report(test::plan_document().dump());
  const std::regex outside{R"((src|href)\s*=\s*"(?!data:)|url\(|@import|fetch\(|XMLHttpRequest)"};
  std::smatch match;
  EXPECT_FALSE(std::regex_search(page, match, outside)) << match.str();
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  EXPECT_THAT(page, HasSubstr("<noscript>"));
}

TEST(HtmlReport, FourRanksAndFourStrategiesStayUnderOneMegabyte) {
  const Json document = test::comparison_document(4, TESSERA_SANITIZED ? 10'000 : 100'000);
  ASSERT_EQ(document["timelines"].size(), 16U);
  ASSERT_GT(document["timelines"][0]["points"].size(), 200U);
  EXPECT_LT(html_report(document.dump()).size(), 1'000'000U);
}

TEST(HtmlReport, RefusesADocumentThatIsNotAReport) {
  EXPECT_THAT(refusal(""), HasSubstr("not JSON"));
  EXPECT_THAT(refusal("{\"kind\":\"compare\",\"command\":\"\xff\"}"), HasSubstr("not JSON"));
  EXPECT_THAT(refusal("[]"), HasSubstr("document: expected an object"));
  EXPECT_THAT(refusal("{}"), HasSubstr("document: expected a member \"kind\""));
  EXPECT_THAT(refusal(R"({"kind":3})"), HasSubstr("document.kind: expected a string"));
  EXPECT_THAT(refusal(R"({"kind":"bench"})"),
              HasSubstr(R"(document.kind: expected "compare", "train", "plan" or "scale")"));
}

struct Damage {
  std::function<void(Json&)> damage;
  const char* says;
};

TEST(HtmlReport, NamesThePlaceOfAValueItCannotDraw) {
  const std::vector<Damage> damages = {
      {[](Json& d) { d.erase("strategies"); }, "document: expected a member \"strategies\""},
      {[](Json& d) { d["model"]["parameters"] = "many"; },
       "document.model.parameters: expected a number"},
      {[](Json& d) { d["strategies"][2]["ranks"][1]["peak_bytes"] = nullptr; },
       "document.strategies[2].ranks[1].peak_bytes: expected a number"},
      {[](Json& d) { d["strategies"][0]["ranks"] = Json::array(); },
       "document.strategies[0].ranks: expected one rank or more"},
      {[](Json& d) { d["strategies"][1]["ranks"][0]["at_peak"]["gather"] = "1"; },
       "document.strategies[1].ranks[0].at_peak.gather: expected a number"},
      {[](Json& d) { d["timelines"][3]["points"][1] = {1, 2, 3, 4}; },
       "document.timelines[3].points[1]: expected [microseconds, phase, unit, bytes by category]"},
      {[](Json& d) { d["timelines"][3]["points"][1][3].push_back(7); },
       "document.timelines[3]: expected as many bytes as categories"},
      {[](Json& d) { d["timelines"][0]["spans"][2] = "compute"; },
       "document.timelines[0].spans[2]: expected [begin, end, stream, what, unit]"},
      {[](Json& d) { d["mesh"]["pipe"] = "two"; }, "document.mesh.pipe: expected a number"},
      {[](Json& d) { d["strategies"][0]["ranks"][0]["places"]["pipe"] = 1; },
       "document.strategies[0].ranks[0].places.pipe: expected [first, last]"},
      {[](Json& d) { d["pipeline"]["ranks"][1][0].erase(4); },
       "document.pipeline.ranks[1][0]: expected [begin, end, work, stage, micro-batch]"},
      {[](Json& d) { d["pipeline"]["recorded"][0].erase("length"); },
       "document.pipeline.recorded[0]: expected a member \"length\""},
      {[](Json& d) { d["created"] = 5; }, "document.created: expected a string"},
  };
  for (const Damage& damage : damages) {
    Json document = test::comparison_document(2, 5);
    test::add_pipeline(document);
    damage.damage(document);
    EXPECT_THAT(refusal(document.dump()), HasSubstr(damage.says));
  }
}

TEST(HtmlReport, TakesEveryKind) {
  for (const Json& document : {test::comparison_document(1, 4), test::plan_document(),
                               test::training_document(), test::scale_document()}) {
    EXPECT_EQ(embedded(html_report(document.dump())), document) << document["kind"];
  }
}

}  // namespace
}  // namespace tessera::html_report_test
