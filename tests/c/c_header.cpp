#include "c/c_header.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <stdexcept>

namespace tessera::c_test {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error{"tests/c/c_header.cpp cannot read tessera/c.h: " + what};
}

/// One space for any white space, none at the ends.
std::string trimmed(const std::string& text) {
  std::istringstream words{text};
  std::string line;
  for (std::string word; words >> word;) { line += (line.empty() ? "" : " ") + word; }
  return line;
}

/// "const char*  name" -> type and name; the star belongs to the type.
DeclaredValue value_of(const std::string& declaration) {
  static const std::map<std::string, std::size_t> sizes = {{"TESSERA_MOST_DIMS", 8},
                                                           {"TESSERA_MOST_CATEGORIES", 16}};
  std::string text = trimmed(declaration);
  DeclaredValue value;
  if (const std::size_t bracket = text.find('['); bracket != std::string::npos) {
    const std::string size = text.substr(bracket + 1, text.find(']') - bracket - 1);
    const auto known = sizes.find(size);
    value.count = known == sizes.end() ? std::stoul(size) : known->second;
    text.resize(bracket);
  }
  const std::size_t end = text.find_last_of(" *");
  if (end == std::string::npos) { fail("'" + declaration + "' has no type"); }
  value.type = trimmed(text.substr(0, end + 1));
  value.name = text.substr(end + 1);
  if (value.type.starts_with("struct ")) { value.type = value.type.substr(7); }
  return value;
}

/// The comment that ends right before `at`, or "".
std::string comment_before(const std::string& text, std::size_t at) {
  const std::size_t last = text.find_last_not_of(" \n", at - 1);
  if (last == std::string::npos || last == 0 || text.substr(last - 1, 2) != "*/") { return {}; }
  const std::size_t first = text.rfind("/*", last);
  std::string comment = text.substr(first, last + 1 - first);
  std::ranges::replace(comment, '*', ' ');
  return trimmed(comment);
}

std::vector<DeclaredValue> parameters_of(const std::string& list) {
  std::vector<DeclaredValue> all;
  if (trimmed(list) == "void") { return all; }
  std::istringstream entries{list};
  for (std::string entry; std::getline(entries, entry, ',');) { all.push_back(value_of(entry)); }
  return all;
}

void add_functions(const std::string& text, CHeader& header) {
  for (const std::string result : {"tessera_status", "const char*"}) {
    const std::string start = "\n" + result + " tessera_";
    for (std::size_t at = text.find(start); at != std::string::npos;
         at = text.find(start, at + 1)) {
      const std::size_t open = text.find('(', at);
      const std::size_t close = text.find(");", open);
      const std::size_t name = at + 1 + result.size() + 1;
      header.functions.push_back(
          {.result = result,
           .name = text.substr(name, open - name),
           .parameters = parameters_of(text.substr(open + 1, close - open - 1)),
           .comment = comment_before(text, at + 1)});
    }
  }
}

/// The members of a struct's body: each ends with a semicolon and a comment.
std::vector<DeclaredValue> members_of(const std::string& body) {
  std::vector<DeclaredValue> all;
  for (std::size_t at = 0; body.find_first_not_of(" \n", at) != std::string::npos;) {
    const std::size_t end = body.find(';', at);
    const std::size_t open = body.find("/**<", end);
    const std::size_t close = body.find("*/", open);
    if (close == std::string::npos) { fail("a member without a comment in '" + body + "'"); }
    all.push_back(value_of(body.substr(at, end - at)));
    all.back().comment = trimmed(body.substr(open + 4, close - open - 4));
    at = close + 2;
  }
  return all;
}

void add_structs(const std::string& text, CHeader& header) {
  const std::string start = "\ntypedef struct tessera_";
  for (std::size_t at = text.find(start); at != std::string::npos; at = text.find(start, at + 1)) {
    const std::size_t name = at + 16;
    const std::size_t open = text.find_first_of("{;", at);
    if (text[open] == ';') { continue; }  // a handle
    const std::size_t close = text.find("\n}", open);
    header.structs.push_back({.name = trimmed(text.substr(name, open - name)),
                              .members = members_of(text.substr(open + 1, close - open - 1))});
  }
}

}  // namespace

bool DeclaredFunction::may_be_null(const std::string& parameter) const {
  // "`a` and `b` may be NULL".
  const std::size_t said = comment.find("may be NULL");
  if (said == std::string::npos) { return false; }
  const std::size_t before = comment.rfind(". ", said);
  const std::size_t sentence = before == std::string::npos ? 0 : before;
  return comment.substr(sentence, said - sentence).find("`" + parameter + "`") != std::string::npos;
}

CHeader CHeader::read(const std::string& path) {
  std::ifstream in{path};
  const std::string text{std::istreambuf_iterator<char>{in}, {}};
  CHeader header;
  add_functions(text, header);
  add_structs(text, header);
  if (header.functions.size() < 50 || header.structs.size() < 10) { fail("it is nearly empty"); }
  return header;
}

}  // namespace tessera::c_test
