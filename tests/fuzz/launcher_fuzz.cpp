// The environment that launchers give a job's processes: one NAME=VALUE per line.
#include <map>
#include <optional>
#include <string>

#include "fuzz/fuzz.hpp"
#include "world/job_place.hpp"
#include "world/launcher.hpp"

namespace tessera::fuzz {
namespace {

std::map<std::string, std::string> variables_of(std::string_view text) {
  std::map<std::string, std::string> variables;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size() < text.size() ? line.size() + 1 : line.size());
    const std::size_t name = line.find('=');
    if (name == std::string_view::npos) { continue; }
    variables.emplace(line.substr(0, name), line.substr(name + 1));
  }
  return variables;
}

void check(const world::FoundJob& found, const world::ReadVariable& read) {
  holds(found.job.rank >= 0 && found.job.rank < found.job.size, "a process is one of its job");
  holds(found.job.on_machine.value_or(1) >= 1, "a process is on its machine");
  const world::FoundPlace place = world::find_place(found, read);
  holds(place.place.meet.port > 0 && place.place.meet.port <= 65535, "a port is one");
  holds(!place.place.meet.host.empty(), "a host has a name");
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  const auto variables = fuzz::variables_of(fuzz::text_of(data, size));
  const world::ReadVariable read = [&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional{found->second};
  };
  fuzz::refuses<ConfigError>([&] {
    if (const auto found = world::find_job(read)) { fuzz::check(*found, read); }
  });
  for (const auto& [name, value] : variables) {
    fuzz::holds(world::first_host(value).size() <= value.size(), "the first host is of the list");
  }
  return 0;
}
