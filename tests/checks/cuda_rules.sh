#!/usr/bin/env bash
# The rules by which kernels stay testable without a GPU, deterministic and right for large arrays.
# Each rule is first tried on a line that breaks it and on one that does not.
. "$(dirname "$0")/../support/check.sh"

# Prints "RULE<TAB>FILE:LINE: LINE" for every breach, or, first, for every rule that does not work.
problems=$(files cuda/'*.cu' cuda/'*.cuh' cuda/'*.h' cuda/'*.cpp' | perl -we '
use strict;

# Atomics whose result does not depend on the order: integers, with or without a look at what was
# there before. One line for each file and function.
my %atomics = map { $_ => 1 } (
  "cuda/accumulate.cu atomicMax",     # whether anything was found
  "cuda/cross_entropy.cu atomicAdd",  # counts hits
  "cuda/loss_rows.cuh atomicAdd",  # counts how often a row is named
  "cuda/loss_rows.cuh atomicMax",  # the last position that names a row
  "cuda/reduce.cuh atomicExch",       # the limit that a fault exceeds, the same for all that write it
  "cuda/reduce.cuh atomicMin",        # the first fault
  "cuda/sort.cuh atomicAdd",          # histograms
);

my $built_in = qr/(?:blockIdx|gridDim)\.[xyz]/;
my $narrow = qr/(?:\d+u?|k[A-Z]\w*|(?:blockDim|threadIdx|blockIdx|gridDim)\.[xyz]|\(int\))/;

# name, what matches, a line that breaks the rule, a line that does not, files that may.
my @rules = (
  ["launches", qr/<<</, "add<<<1, 32>>>(x);", "y = x << 3;"],
  ["launches", qr/\bcudaLaunch\w+\s*\(/, "cudaLaunchKernel(f, g, b, args, 0, s);",
   "launch(add, 1, 32, 0, x);", "cuda/launch.h"],
  ["shared memory", qr/\b__shared__\b/, "__shared__ float tile[32];",
   "LIPGRAD_SHARED(float, tile, [32]);", "cuda/launch.h"],
  ["assembly", qr/\b(?:asm|__asm__|__asm|__nvvm_\w+)\b/,
   "asm volatile(\"membar.gl;\");", "const int asm_count = 1;"],
  ["cooperative groups", qr/\bcooperative_groups\b/,
   "namespace cg = cooperative_groups;", "int groups = 2;"],
  ["CUB and Thrust", qr/\b(?:cub|thrust)::|#\s*include\s*<(?:cub|thrust|cuda)\//,
   "cub::BlockReduce<float, 128> reduce;", "double cubic = x * x * x;"],
  ["architecture forks", qr/\b__CUDA_ARCH\w*__\b/, "#if __CUDA_ARCH__ >= 900",
   "#ifdef LIPGRAD_CUDA_EMULATED"],
  ["tensor cores", qr/\b(?:nvcuda|wmma|wgmma|mma_sync|mma\.h)\b/,
   "nvcuda::wmma::fragment<A> a;", "matmul(a, b);"],
  ["asynchronous copies", qr/\b(?:cp_async|memcpy_async|__pipeline_\w+|cuda_pipeline\w*)\b/,
   "__pipeline_memcpy_async(to, from, 16);", "cudaMemcpyAsync(to, from, 16, kind, stream);"],
  ["waiting", qr/\bcuda(?:Device|Thread)Synchronize\b/, "cudaDeviceSynchronize();",
   "cudaStreamSynchronize(stream);"],
  ["legacy stream",
   qr/\bcuda(?:Memcpy(?:2D|3D|Peer|ToSymbol|FromSymbol)?|Memset(?:2D|3D)?)\s*\(|\bcudaStream(?:Legacy|PerThread)\b/,
   "check(cudaMemcpy(to, from, 4, kind), what);", "cudaMemsetAsync(p, 0, 4, stream);"],
  ["fast math",
   qr/\b__(?:expf|exp10f|logf|log2f|log10f|sinf|cosf|tanf|tanhf|sincosf|powf|fdividef|saturatef)\b|use_fast_math/,
   "y = __expf(x);", "y = expf(x);"],
  ["atomics of the library", qr/\b(?:cuda|std)::atomic/, "cuda::atomic_ref<int> a(x);",
   "int atomic = 1;", "cuda/pool.cpp"],
  ["32-bit products", qr/(?<![\w.])$built_in\s*\*\s*$narrow|\b$narrow\s*\*\s*$built_in/,
   "i = blockIdx.x * blockDim.x + threadIdx.x;",
   "i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;"],
  ["32-bit products", qr/\b(?:int|unsigned)\s+\w+\s*=[^;]*\bblockIdx\.x\s*[*+]/,
   "const int i = blockIdx.x + n;", "const std::int64_t i = thread_index();"],
);

# Comments and what stands in quotes become blanks; lines stay where they are.
sub code {
  my $text = shift;
  $text =~ s{("(?:[^"\\\n]|\\.)*")|(//[^\n]*)|(/\*.*?\*/)}
            {my $all = $&; $all =~ s/[^\n]/ /g; $all}gse;
  return $text;
}

# The arguments of the call whose "(" stands at the given place.
sub arguments {
  my ($text, $at) = @_;
  my ($depth, $count) = (0, 1);
  for (my $i = $at; $i < length $text; $i++) {
    my $c = substr $text, $i, 1;
    $depth++ if $c =~ /[(\[{]/;
    if ($c =~ /[)\]}]/) { $depth--; return $count if $depth == 0; }
    $count++ if $c eq "," && $depth == 1;
  }
  return 0;
}
my %takes = (cudaMemcpyAsync => 5, cudaMemcpy2DAsync => 8, cudaMemsetAsync => 4,
             cudaEventRecord => 2, cudaMemcpyPeerAsync => 6);

# Every breach in a text as [rule, line number].
sub breaches {
  my ($file, $text) = @_;
  my $code = code($text);
  my @found;
  my $line = 0;
  for (split /\n/, $code, -1) {
    $line++;
    for my $rule (@rules) {
      my ($name, $pattern, undef, undef, $may) = @$rule;
      next if defined $may && $may eq $file;
      push @found, [$name, $line] if /$pattern/;
    }
    while (/\b(atomic[A-Z]\w*)\s*\(/g) {
      push @found, ["atomics", $line] unless $atomics{"$file $1"};
    }
  }
  my $line_at = sub { 1 + (substr($code, 0, shift) =~ tr/\n//) };
  # Calls that fall back to the legacy stream when the last argument is left out.
  while ($code =~ /\b(cuda\w+)\s*\(/g) {
    next unless exists $takes{$1};
    my ($name, $at) = ($1, pos($code) - 1);
    push @found, ["legacy stream", $line_at->($at)] if arguments($code, $at) != $takes{$name};
  }
  # A block number times something whose declaration does not say that it has 64 bits.
  while ($code =~ /(?<![\w.])$built_in\s*\*\s*(?!$narrow)([A-Za-z_]\w*)|\b([A-Za-z_]\w*)\s*\*\s*$built_in/g) {
    my ($name, $from) = (defined $1 ? $1 : $2, $-[0]);
    next if $name =~ /^k[A-Z]/;
    push @found, ["32-bit products", $line_at->($from)]
      unless $code =~ /\bint64_t\s+(?:\w+(?:\s*=[^,;]*)?,\s*)*$name\b/ &&
             $code !~ /\b(?:int|unsigned)\s+$name\b/;
  }
  # Offsets from a block number that was stored in 32 bits, multiplied by another 32-bit number.
  while ($code =~ /\b(?:int|unsigned|auto)\s+(\w+)\s*=\s*(?:static_cast<int>\()?blockIdx\.x\b/g) {
    my ($name, $from) = ($1, pos $code);
    my $rest = substr $code, $from;
    $rest = substr $rest, 0, $-[0] if $rest =~ /\n\}/;
    while ($rest =~ /(?<![\w.)])\b$name\s*\*\s*(?:\d|k[A-Z]|blockDim)|(?:\d|\bk[A-Z]\w*|blockDim\.[xyz])\s*\*\s*$name\b/g) {
      push @found, ["32-bit products", $line_at->($from + $-[0])];
    }
  }
  return @found;
}

my @tries = map { [@$_[0, 2, 3]] } @rules;
push @tries, ["atomics", "atomicAdd(&sum[row], value);", "atomicity(x);"],
  ["legacy stream", "check(cudaMemcpyAsync(to, from,\n  bytes(a, b), kind), what);",
   "check(cudaMemcpyAsync(to, from,\n  bytes(a, b), kind, stream), what);"],
  ["legacy stream", "cudaEventRecord(done);", "cudaEventRecord(done, stream);"],
  ["32-bit products", "const int row = blockIdx.x;\nx += row * kWidth;",
   "const std::int64_t row = blockIdx.x;\nx += row * kWidth;"],
  ["32-bit products", "void f(int cols) {\n  x += blockIdx.x * cols;\n}",
   "void f(std::int64_t cols) {\n  x += blockIdx.x * cols;\n}"],
  ["32-bit products", "const int i = kBlock * blockIdx.x;", "// blockIdx.x * blockDim.x overflows"],
  ["shared memory", "extern __shared__ float buffer[];", "/* __shared__\n */ int x;"],
  ["fast math", "y = __fdividef(a, b);", "log(\"__expf\");"];
my $works = 1;
for (@tries) {
  my ($name, $bad, $good) = @$_;
  unless (grep { $_->[0] eq $name } breaches("cuda/planted.cu", $bad)) {
    print "the rules\t\"$name\" does not see: $bad\n";
    $works = 0;
  }
  if (grep { $_->[0] eq $name } breaches("cuda/planted.cu", $good)) {
    print "the rules\t\"$name\" takes for a breach: $good\n";
    $works = 0;
  }
}
print "works\t" . @tries . "\n" if $works;

while (my $file = <STDIN>) {
  chomp $file;
  open my $in, "<", $file or die "$file: $!";
  my $text = do { local $/; <$in> };
  my @lines = split /\n/, $text, -1;
  printf "%s\t%s:%d: %s\n", $_->[0], $file, $_->[1], $lines[$_->[1] - 1] =~ s/^\s+//r
    for breaches($file, $text);
}
')

rules=$(sed -n 's/^works\t//p' <<<"$problems")
if [[ -n $rules ]]; then
  ok "cuda rules: $rules planted breaches seen, $rules good lines let through"
else
  failed "cuda rules" "a rule does not work"
  sed -n 's/^the rules\t/    /p' <<<"$problems"
fi
verdict "cuda rules: $(files cuda/'*.cu' cuda/'*.cuh' cuda/'*.h' cuda/'*.cpp' | wc -l) files" \
  "$(grep -vE $'^(works|the rules)\t' <<<"$problems" | sed 's/\t/: /')"
