#pragma once

namespace tessera::test {

// Where CMake built or found what tests read and run. Each program defines those that it uses in
// one generated source (tessera_test_places in tests/CMakeLists.txt), so that no other object
// depends on where the project lies, and a compiler's cache hits in every clone.

/// The project's root.
extern const char* const kSourceDir;
/// The tessera command.
extern const char* const kCommand;
/// Starts a job of processes: the arguments are -n, their number, and the command.
extern const char* const kLauncher;
/// mpiexec; empty where kLauncher needs none.
extern const char* const kMpiexec;
/// The program that fails in the requested way (tests/mpi/failing_rank.cpp).
extern const char* const kFailingRank;
/// The library that NVTX takes for a profiler.
extern const char* const kNvtxRecorder;
/// The module that gives the command a clock of its log (tests/cli/preload).
extern const char* const kLogClock;

}  // namespace tessera::test
