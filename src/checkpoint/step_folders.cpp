#include "checkpoint/step_folders.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <system_error>
#include <tuple>

#include "base/machine.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/part.hpp"
#include "tessera/base/error.hpp"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPartInfix = ".part-";
constexpr int kStepDigits = 8;

template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number number{};
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  if (error != std::errc{} || end != last || number < 0) { return {}; }
  return number;
}

}  // namespace

std::string step_name(std::int64_t step) {
  return fmt::format("{}{:0{}}", kStepPrefix, step, kStepDigits);
}

std::string part_name(std::int64_t step, int part) {
  return fmt::format("{}{}{}", step_name(step), kPartInfix, part);
}

std::string hidden_name(std::string_view name, std::string_view end) {
  return fmt::format(".{}.{}{}", name, unique_mark(), end);
}

bool is_hidden(std::string_view entry, std::string_view name, std::string_view end) {
  return entry.starts_with('.') && entry.substr(1).starts_with(name) && entry.ends_with(end);
}

fs::path StepFolder::path_in(const fs::path& folder) const {
  return folder / (is_new ? name + std::string{kNewEnd} : name);
}

std::optional<StepFolder> parse_step_folder(std::string_view entry) {
  StepFolder found;
  found.is_new = entry.ends_with(kNewEnd);
  if (found.is_new) { entry.remove_suffix(kNewEnd.size()); }
  if (!entry.starts_with(kStepPrefix)) { return {}; }
  const std::size_t infix = std::min(entry.find(kPartInfix), entry.size());
  const auto step = number_of<std::int64_t>(entry.substr(0, infix).substr(kStepPrefix.size()));
  if (!step) { return {}; }
  found.step = *step;
  if (infix < entry.size()) {
    found.part = number_of<int>(entry.substr(infix + kPartInfix.size()));
    if (!found.part) { return {}; }
  }
  // A number is written in one way only: no two names belong to one step.
  found.name = found.part ? part_name(found.step, *found.part) : step_name(found.step);
  if (found.name != entry) { return {}; }
  return found;
}

void require_step(const fs::path& folder, std::int64_t step) {
  const auto named = parse_step_folder(folder.filename().string());
  if (!named || named->step == step) { return; }
  throw FormatError(
      fmt::format("{}: its manifest is of step {}; give the folder its name back ({})",
                  folder.string(), step, step_name(step)));
}

std::string_view claim_of(std::string_view name) {
  return name.find(kPartInfix) == std::string_view::npos ? kManifestName : kPartName;
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  std::error_code error;
  fs::directory_iterator entry{folder, error};
  for (; !error && entry != fs::directory_iterator{}; entry.increment(error)) {
    names.insert(entry->path().filename().string());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw Error(
        fmt::format("the folder {} cannot be listed: {}", folder.string(), error.message()));
  }
  return names;
}

std::vector<StepFolder> steps_in(const fs::path& folder, StepKind kind) {
  std::vector<StepFolder> steps;
  for (const std::string& name : names_in(folder)) {
    auto step = parse_step_folder(name);
    if (step && step->part.has_value() == (kind == StepKind::part)) {
      steps.push_back(*std::move(step));
    }
  }
  std::sort(steps.begin(), steps.end(), [](const StepFolder& a, const StepFolder& b) {
    return std::tie(a.step, a.part, a.is_new) < std::tie(b.step, b.part, b.is_new);
  });
  return steps;
}

bool is_part_folder(const fs::path& folder) {
  return is_file(folder / kPartName) && !is_file(folder / kManifestName) &&
         steps_in(folder, StepKind::whole).empty() && steps_in(folder, StepKind::part).empty();
}

std::string text_of_part(const fs::path& path) {
  return fmt::format(
      "{} is of one machine's part of a checkpoint, with zeros for the bytes of other machines; "
      "join the parts of all machines first (tessera checkpoint merge)",
      path.string());
}

bool name_is_taken(const fs::path& path) {
  std::error_code ignored;
  return fs::symlink_status(path, ignored).type() != fs::file_type::not_found;
}

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

bool is_plain_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(fs::symlink_status(path, ignored));
}

}  // namespace tessera::checkpoint
