#include "checkpoint/joined_parts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "checkpoint/readable_file.hpp"
#include "checkpoint/step_folders.hpp"
#include "tessera/base/error.hpp"

namespace tessera::checkpoint {
namespace {

void check_save(const std::vector<FoundPart>& parts) {
  const CheckpointPart& first = parts.front().part;
  std::vector<bool> found(static_cast<std::size_t>(first.parts));
  for (const FoundPart& part : parts) {
    if (part.part.save != first.save || part.part.parts != first.parts) {
      throw IncompleteParts(
          fmt::format("{} and {} are parts of different saves; give the parts of one save",
                      parts.front().folder.string(), part.folder.string()));
    }
    const auto number = static_cast<std::size_t>(part.part.part);
    if (found.at(number)) {
      throw FormatError(fmt::format("{}: part {} is given twice; give each part once",
                                    part.folder.string(), number));
    }
    found[number] = true;
  }
  std::vector<std::size_t> missing;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!found[i]) { missing.push_back(i); }
  }
  if (!missing.empty()) {
    throw IncompleteParts(
        fmt::format("of the {} parts of step {}, one from each machine, part {} is missing",
                    first.parts, first.manifest.step, fmt::join(missing, ", ")));
  }
}

// Adds the sums of `part` to `sum`. Everything else must be equal.
void add_manifest(Manifest& sum, const FoundPart& first, const FoundPart& part) {
  Manifest plain = part.part.manifest;
  Manifest expected = sum;
  for (Manifest* const manifest : {&plain, &expected}) {
    for (ManifestTensor& tensor : manifest->tensors) {
      std::fill(tensor.sums.begin(), tensor.sums.end(), 0);
    }
  }
  if (format_manifest(plain) != format_manifest(expected)) {
    throw FormatError(
        fmt::format("{} and {} are parts of one save, but list different contents; one of them is "
                    "damaged, use another checkpoint",
                    first.folder.string(), part.folder.string()));
  }
  for (std::size_t t = 0; t < sum.tensors.size(); ++t) {
    std::vector<std::uint64_t>& sums = sum.tensors[t].sums;
    const std::vector<std::uint64_t>& more = part.part.manifest.tensors[t].sums;
    for (std::size_t b = 0; b < sums.size(); ++b) { sums[b] += more[b]; }
  }
}

void check_cover_of(const std::string& file, std::uint64_t bytes,
                    std::vector<std::pair<PartRange, std::string>> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const auto& a, const auto& b) { return a.first.first_byte < b.first.first_byte; });
  std::uint64_t end = 0;
  for (const auto& [range, folder] : ranges) {
    if (range.first_byte < end) {
      throw FormatError(
          fmt::format("{}: byte {} of {} is also in another part; one of them is damaged, use "
                      "another checkpoint",
                      folder, range.first_byte, file));
    }
    if (range.first_byte > end) { break; }
    end += range.bytes;
  }
  if (end != bytes) {
    throw FormatError(fmt::format(
        "byte {} of {} is in no part; a part is damaged, use another checkpoint", end, file));
  }
}

/// Returns the parts of the one save that has all of its parts; all `parts` if none has. An
/// earlier save of the step, by more machines, leaves parts that the later one does not replace.
std::vector<FoundPart> one_save(const std::vector<FoundPart>& parts) {
  std::map<std::string, std::vector<FoundPart>> saves;
  for (const FoundPart& part : parts) { saves[part.part.save].push_back(part); }
  const auto complete = std::ranges::find_if(saves, [](const auto& save) {
    return std::ssize(save.second) == save.second.front().part.parts;
  });
  return complete == saves.end() ? parts : complete->second;
}

}  // namespace

FoundPart read_part(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kPartName;
  FoundPart found{folder, parse_part(path.string(), read_text(path, kMostPartBytes))};
  require_step(folder, found.part.manifest.step);
  return found;
}

std::vector<FoundPart> parts_of_step(const std::filesystem::path& path) {
  const auto named = parse_step_folder(path.filename().string());
  if (!named || is_file(path / kManifestName)) { return {}; }
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  std::vector<FoundPart> parts;
  std::string last;
  for (const StepFolder& part : steps_in(folder, StepKind::part)) {
    if (part.step != named->step) { continue; }
    if (part.name == last) { parts.pop_back(); }  // replaced by this one
    parts.push_back(read_part(part.path_in(folder)));
    last = part.name;
  }
  return one_save(parts);
}

Manifest joined_manifest(const std::vector<FoundPart>& parts) {
  expects(!parts.empty(), "joined_manifest: no parts were given");
  check_save(parts);
  Manifest manifest = parts.front().part.manifest;
  for (std::size_t p = 1; p < parts.size(); ++p) {
    add_manifest(manifest, parts.front(), parts[p]);
  }
  std::map<std::string, std::vector<std::pair<PartRange, std::string>>> ranges;
  for (const FoundPart& part : parts) {
    for (const PartRange& range : part.part.ranges) {
      ranges[range.file].emplace_back(range, part.folder.string());
    }
  }
  for (const auto& [file, bytes] : manifest.files) { check_cover_of(file, bytes, ranges[file]); }
  return manifest;
}

}  // namespace tessera::checkpoint
