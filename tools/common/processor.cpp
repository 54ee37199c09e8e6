// Compiled for the oldest processor (see CMakeLists.txt), so that it can report what such a
// processor lacks.
#include "tools/common/processor.hpp"

#include "tessera/base/error.hpp"

namespace tessera::tools {

std::string compiled_level() {
  return TESSERA_ARCH;
}

std::string processor_level() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool v2 = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
  const bool v3 = v2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return v4 ? "x86-64-v4" : v3 ? "x86-64-v3" : v2 ? "x86-64-v2" : "x86-64";
#else
  return "";
#endif
}

void require_processor() {
  const std::string needed = compiled_level();
  const bool level = needed.rfind("x86-64", 0) == 0;
  if (level && processor_level() < needed) {
    throw ConfigError("this build needs an " + needed + " processor and this one is " +
                      processor_level() + "; build with -DTESSERA_ARCH=" + processor_level());
  }
}

}  // namespace tessera::tools
