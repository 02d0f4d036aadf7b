#pragma once

#include <cstdint>
#include <string>

// What doctor asks of the machine. Everything comes from Linux's /proc and /sys; what cannot be
// found out there is empty or 0.
namespace lipgrad::cli {

struct Processor {
  std::string model;    // "AMD EPYC"
  double mhz = 0;       // now, of the first one
  int online = 0;       // processors of the machine
  int allowed = 0;      // that this process may run on
  double quota = 0;     // processors' worth of time that its control group grants; 0: no limit
  bool avx2 = false;    // with FMA
  bool avx512 = false;  // foundation, with all that Highway's AVX3 needs
  double load = 0;      // average over the last minute: 2 keeps two processors busy
};

struct Memory {
  std::int64_t total = 0, available = 0;  // bytes of the machine
  std::int64_t limit = 0;                 // of the control group; 0: none
};

Processor processor();
Memory machine_memory();

}  // namespace lipgrad::cli
