# Part build of scripts/gpu_check.sh.

part_build() {
  bar device "the module is built for the card and can use it"
  if [[ -n $given_build ]]; then
    note "A finished build was named: nothing is compiled."
  else
    compile || return 0
  fi
  local status=0
  keep 60 "$build/tools/tessera" doctor || status=$?
  if ((status == 124)); then
    judge device "not measured" "$(reason_of "$status")" "$shown"
  elif ((status != 0)); then
    judge device "NOT met" "tessera doctor failed" "$shown"
  elif grep -q 'cuda:0' "$log"; then
    judge device met "$(sed -n 's/^ *\(cuda:0\) */\1: /p' "$log" | head -n 1)" "$shown"
  else
    fails "no CUDA device can be used: see \`not usable\` above"
    judge device "NOT met" "tessera doctor names no device" "$shown"
  fi
}

# The options leave out every component that the target does not build: cmake --install needs the
# files of all components.
compile() {
  local arch options=(-DCMAKE_BUILD_TYPE=Release -DTESSERA_CUDA=ON -DTESSERA_BUILD_BENCH=OFF
    -DTESSERA_BUILD_EXAMPLES=OFF -DTESSERA_MPI=OFF -DTESSERA_EMULATED_CUDA=OFF -DTESSERA_C=OFF
    -DTESSERA_TORCH=OFF)
  if ! arch=$(architecture); then
    fails "no compute capability: neither nvidia-smi nor a small CUDA program finds a device"
    judge device "NOT met" "no device was found"
    return 1
  fi
  options+=("-DTESSERA_CUDA_ARCHITECTURES=$arch-real")
  if [[ -n $bundle ]]; then options+=("-DTESSERA_BUNDLE=$bundle"); fi
  if command -v ninja >/dev/null; then options+=(-G Ninja); fi
  # CMake looks for the NCCL and cuDNN wheels of this Python.
  if [[ -n $python ]]; then options+=("-DPython3_EXECUTABLE=$python"); fi
  keep 20 cmake -S . -B "$build" "${options[@]}" || return 1
  keep 12 cmake --build "$build" --parallel "$(nproc)" --target gpu_check_programs || return 1
  build=$(realpath "$build")
  compile_trainer "$arch"
}

# Builds the examples' CUDA trainer as a user's own project. A failure counts, but the part continues.
compile_trainer() {
  local nvcc options=(-DCMAKE_BUILD_TYPE=Release "-DCMAKE_CUDA_ARCHITECTURES=$1-real")
  nvcc=$(sed -n 's/^TESSERA_NVCC:FILEPATH=//p' "$build/CMakeCache.txt")
  if command -v ninja >/dev/null; then options+=(-G Ninja); fi
  options+=("-DCMAKE_CUDA_COMPILER=$nvcc" "-DCMAKE_PREFIX_PATH=$build/installed"
    "-DSOURCE=$PWD/examples/cuda_trainer.cu")
  keep 3 cmake --install "$build" --prefix "$build/installed" || return 0
  keep 6 cmake -S tests/install/cuda_trainer -B "$build/cuda_trainer" "${options[@]}" || return 0
  keep 6 cmake --build "$build/cuda_trainer" || return 0
}
