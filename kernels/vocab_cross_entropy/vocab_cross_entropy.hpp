#pragma once

#include "kernels/support/host_device.hpp"
#include "tessera/kernels/vocab_cross_entropy.hpp"

namespace tessera::kernels {

using VocabStatisticsKernel = void(const VocabStatistics& args, Stream stream);
using VocabCrossEntropyKernel = void(const VocabCrossEntropy& args, Stream stream);

namespace reference {
VocabStatisticsKernel vocab_statistics;
VocabCrossEntropyKernel vocab_cross_entropy;
}  // namespace reference
namespace cpu {
VocabStatisticsKernel vocab_statistics;
VocabCrossEntropyKernel vocab_cross_entropy;
}  // namespace cpu
namespace cuda {
VocabStatisticsKernel vocab_statistics;
VocabCrossEntropyKernel vocab_cross_entropy;
}  // namespace cuda

}  // namespace tessera::kernels
