// A machine profile, read, written and read again, and the times computed from it.
#include <vector>

#include "fuzz/fuzz.hpp"
#include "tessera/profile/machine_profile.hpp"

namespace tessera::fuzz {
namespace {

void check_times(const MachineProfile& profile) {
  for (const KernelSample& sample : profile.kernels) {
    refuses<ConfigError>([&] {  // the profile has no FLOPs of the dtype
      const KernelSeconds seconds = kernel_seconds(sample.work, profile);
      holds(!(seconds.alone < 0) && !(seconds.shared < 0), "no kernel takes less than no time");
    });
  }
  for (const char* const name : {"all_gather", "all_reduce"}) {
    refuses<ConfigError>([&] {  // more ranks than the profile's levels hold
      const CollectiveSeconds seconds =
          collective_seconds({.name = name, .bytes = 4096}, {0, 1, 2, 3, 9}, profile);
      holds(!(seconds.latency < 0) && !(seconds.moving < 0),
            "no collective takes less than no time");
    });
  }
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  fuzz::refuses<ConfigError>([&] {
    const MachineProfile profile = parse_machine_profile(fuzz::text_of(data, size));
    const std::string text = machine_profile_json(profile);
    fuzz::holds(machine_profile_json(parse_machine_profile(text)) == text,
                "a profile that was written reads as it was");
    fuzz::check_times(profile);
  });
  return 0;
}
