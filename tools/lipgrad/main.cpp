#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>

#include <CLI/CLI.hpp>

#include <lipgrad/config.h>
#include <lipgrad/core/error.h>
#include <lipgrad/core/threads.h>

#include "lipgrad/commands.h"
#include "lipgrad/spelling.h"

int main(int argc, char** argv) {
  using namespace lipgrad;
  CLI::App app{"lipgrad: attention that stays Lipschitz, on graphs and images", "lipgrad"};
  app.set_version_flag("--version", std::string("lipgrad ") + kVersion);
  app.require_subcommand(1);
  app.fallthrough();  // --threads may stand anywhere
  int threads = 0;
  app.add_option("--threads", threads,
                 "Threads to use; results do not depend on it (default: all processors)")
      ->check(CLI::Range(1, 1024));
  app.parse_complete_callback([&] {
    if (threads > 0) set_num_threads(threads);
    num_threads();  // says so now if LIPGRAD_THREADS is not a number
  });
  int exit = cli::success;
  cli::add_train(app, exit);
  cli::add_sweep(app, exit);
  cli::add_eval(app, exit);
  cli::add_predict(app, exit);
  cli::add_convert(app, exit);
  cli::add_summary(app, exit);
  cli::add_inspect(app, exit);
  cli::add_gradcheck(app, exit);
  cli::add_rates(app, exit);
  cli::add_doctor(app, exit);
  cli::add_completion(app, exit);
  // Subcommands take over the footer there is when they are added.
  app.footer(
      "Exit status: 0 success, 1 an error, 2 a wrong command line, 130 stopped by SIGINT or "
      "SIGTERM.\n"
      "Options of a command: lipgrad COMMAND --help");
  try {
    app.parse(argc, argv);
    if (std::fflush(stdout) != 0 || std::ferror(stdout))
      throw Error(std::string("standard output: ") + std::strerror(errno));
    return exit;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help, --version
      app.exit(error);
      return cli::success;
    }
    const std::string unknown = cli::what_is_unknown(app, {argv + 1, argv + argc});
    std::fprintf(stderr, "lipgrad: %s\nlipgrad --help tells more.\n",
                 unknown.empty() ? error.what() : unknown.c_str());
    return cli::usage;
  } catch (const Error& error) {
    std::fprintf(stderr, "lipgrad: %s\n", error.what());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "lipgrad: out of memory\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lipgrad: %s\n", error.what());
  }
  return cli::failure;
}
