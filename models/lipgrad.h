#pragma once

// Everything a lipgrad program needs.
#include <lipgrad/core/error.h>
