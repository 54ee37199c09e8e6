// Opens the given module, as Tessera does, and prints its report.
#include <dlfcn.h>

#include <cstdio>

int main(int count, char** arguments) {
  void* const module = count == 2 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (module == nullptr) {
    std::fprintf(stderr, "%s\n", count == 2 ? dlerror() : "usage: program MODULE");
    return 1;
  }
  reinterpret_cast<void (*)()>(dlsym(module, "say"))();
}
