// Times MPI's own collectives on fp32: mpirun -n 2 mpi_collectives [bytes] [rounds]
//
// Rank 0 prints one JSON object per collective with the seconds of each round (from the moment all
// ranks have met to the moment the last has its data).
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

namespace {

std::vector<double> time_rounds(int rounds, const std::function<void()>& run) {
  std::vector<double> seconds;
  for (int round = 0; round <= rounds; ++round) {  // the first round touches the memory
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    run();
    MPI_Barrier(MPI_COMM_WORLD);
    if (round > 0) { seconds.push_back(MPI_Wtime() - begin); }
  }
  return seconds;
}

void report(const char* name, const std::vector<double>& seconds) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank != 0) { return; }
  std::printf("{\"name\": \"mpi %s\", \"seconds\": [", name);
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    std::printf("%s%.9f", i == 0 ? "" : ", ", seconds[i]);
  }
  std::printf("]}\n");
}

}  // namespace

int main(int count, char** arguments) {
  MPI_Init(&count, &arguments);
  int ranks = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const long bytes = count > 1 ? std::atol(arguments[1]) : 64L << 20;
  const int rounds = count > 2 ? std::atoi(arguments[2]) : 10;
  const int part = static_cast<int>(bytes / static_cast<long>(sizeof(float)) / ranks);
  std::vector<float> whole(static_cast<std::size_t>(part) * static_cast<std::size_t>(ranks), 1.0F);
  std::vector<float> shard(static_cast<std::size_t>(part), 1.0F);

  report("all_gather", time_rounds(rounds, [&] {
           MPI_Allgather(shard.data(), part, MPI_FLOAT, whole.data(), part, MPI_FLOAT,
                         MPI_COMM_WORLD);
         }));
  report("reduce_scatter", time_rounds(rounds, [&] {
           MPI_Reduce_scatter_block(whole.data(), shard.data(), part, MPI_FLOAT, MPI_SUM,
                                    MPI_COMM_WORLD);
         }));
  report("all_reduce", time_rounds(rounds, [&] {
           MPI_Allreduce(MPI_IN_PLACE, whole.data(), part * ranks, MPI_FLOAT, MPI_SUM,
                         MPI_COMM_WORLD);
         }));
  MPI_Finalize();
  return 0;
}
