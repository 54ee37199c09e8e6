// A signal to a run on a CUDA device, where the host already enqueues the next step when it sees
// the signal.
#include "cli/running_command.hpp"
#include "cuda_cli/cuda_command.hpp"

namespace tessera::test::cuda_signal_test {
namespace {

using ::testing::HasSubstr;

using CudaSignal = CudaCommand;

TEST_F(CudaSignal, TheCurrentStepIsTheLastOnAllRanksAndItsWeightsAreWritten) {
  NamedPipe pipe{path("log")};
  const Words more = {"--device", "cuda", "--strategy", "zero3", "--lr-schedule", "constant"};
  Words endless = on_ranks(
      "2", "train", {"--steps", "1000000000", "--log", path("log"), "--checkpoint", path("c")});
  endless.insert(endless.begin(), kCommand);
  endless.insert(endless.end(), more.begin(), more.end());
  RunningCommand run{endless, path("run")};
  ASSERT_TRUE(pipe.read_lines(5));
  run.send(SIGTERM);
  pipe.read_to_end();
  const Outcome outcome = run.wait();
  EXPECT_EQ(outcome.status, 128 + SIGTERM) << outcome.err;
  const std::string steps = std::to_string(pipe.lines());
  EXPECT_THAT(outcome.err, HasSubstr("stopped by SIGTERM after step " + steps + " of"));

  Words whole = on_ranks("2", "train", {"--steps", steps, "--checkpoint", path("d")});
  whole.insert(whole.end(), more.begin(), more.end());
  ASSERT_EQ(tessera(whole).status, 0);
  EXPECT_TRUE(read_file(path("c/model.safetensors")) == read_file(path("d/model.safetensors")));
}

}  // namespace
}  // namespace tessera::test::cuda_signal_test
