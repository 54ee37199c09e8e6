#pragma once

namespace tessera::test {

// Paths of files that tests read and run, as CMake built or found them. Each program defines those
// that it uses in one generated source (tessera_test_places in tests/CMakeLists.txt). Other objects
// do not depend on the project's path, so a compiler cache hits in every clone.

/// The project's root.
extern const char* const kSourceDir;
/// The tessera command.
extern const char* const kCommand;
/// Starts a job of processes; its arguments are -n, their number, and the command.
extern const char* const kLauncher;
/// mpiexec; empty where kLauncher needs none.
extern const char* const kMpiexec;
/// The program that fails in the requested way (tests/mpi/failing_rank.cpp).
extern const char* const kFailingRank;
/// The library that NVTX loads as a profiler.
extern const char* const kNvtxRecorder;
/// The module that replaces the clock of the command's log (tests/cli/preload).
extern const char* const kLogClock;

}  // namespace tessera::test
