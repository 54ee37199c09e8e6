#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "support/places.hpp"
#include "tools/options/command_line.hpp"

namespace tessera::test {

/// The settings of a command line "tessera scale" with these words.
inline tools::Settings scale_settings(const std::vector<std::string>& words) {
  std::vector<const char*> raw = {"scale"};
  for (const std::string& word : words) { raw.push_back(word.c_str()); }
  return tools::parse_command_line(raw).settings;
}

/// A small model of the hub (tests/hub/record.py): "gpt2", "llama2", "qwen3" and others.
inline std::string hub_folder(const std::string& name) {
  return std::filesystem::path{kSourceDir} / "tests/hub/data" / name;
}

}  // namespace tessera::test
