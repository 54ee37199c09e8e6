// A library that says where it is from: FUNCTION and PLACE are given by check_libraries.cmake.
extern "C" const char* FUNCTION();

const char* FUNCTION() {
  return PLACE;
}
