#!/usr/bin/env python3
"""Writes the data set "tiny" of this folder: Planetoid's eight files, with the opcodes in the order
in which Python 2's pickle wrote the originals.

14 nodes, 6 features, 3 classes. Nodes 0-8 are in allx (0-2 train, 3-8 validation), 9-13 are the test
range, of which 11 has no row, like the 15 nodes of CiteSeer. The adjacency lists hold two repeated
edges (0-1, 5-6) and two self-loops (3, 9); node 13 has no neighbour. 12 edges remain.
"""
import struct

F, C = 6, 3
EDGES = [(0, 1), (0, 2), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7), (7, 8), (8, 9), (9, 10), (11, 12)]


class Pickler:
    def __init__(self):
        self.out, self.memo = b"\x80\x02", {}

    def put(self, name=None):
        number = len(self.memo) + 1
        self.memo[name or number] = number
        self.out += b"q" + bytes([number]) if number < 256 else b"r" + struct.pack("<I", number)

    def integer(self, i):
        if 0 <= i < 256:
            self.out += b"K" + bytes([i])
        elif 0 <= i < 65536:
            self.out += b"M" + struct.pack("<H", i)
        else:
            self.out += b"J" + struct.pack("<i", i)

    def string(self, s, put=False):
        self.out += b"U" + bytes([len(s)]) + s if len(s) < 256 else b"T" + struct.pack("<i", len(s)) + s
        if put:
            self.put()

    def shared(self, name):
        if name in self.memo:
            self.out += b"h" + bytes([self.memo[name]])
        else:
            self.out += b"c" + name.replace(b" ", b"\n") + b"\n"
            self.put(name)

    def dtype(self, name):
        if name in self.memo:
            self.out += b"h" + bytes([self.memo[name]])
            return
        self.shared(b"numpy dtype")
        self.string(name)
        self.out += b"K\x00K\x01\x87R"
        self.put(name)
        self.out += b"(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"

    def array(self, dtype, shape, data):
        self.shared(b"numpy.core.multiarray _reconstruct")
        self.shared(b"numpy ndarray")
        self.out += b"K\x00\x85U\x01b\x87R"
        self.put()
        self.out += b"(K\x01"
        for size in shape:
            self.integer(size)
        self.out += b"\x85" if len(shape) == 1 else b"\x86"
        self.dtype(dtype)
        self.out += b"\x89"
        self.string(struct.pack("<%d%s" % (len(data), {b"i4": "i", b"f4": "f"}[dtype]), *data))
        self.out += b"tb"

    def csr(self, rows):
        indptr, indices, data = [0], [], []
        for row in rows:
            indices += [j for j, v in enumerate(row) if v]
            data += [v for v in row if v]
            indptr.append(len(indices))
        self.shared(b"scipy.sparse.csr csr_matrix")
        self.out += b")\x81"
        self.put()
        self.out += b"}"
        self.put()
        self.out += b"("
        self.string(b"format", True)
        self.string(b"csr")
        self.string(b"_shape", True)
        self.integer(len(rows))
        self.integer(F)
        self.out += b"\x86"
        self.string(b"indptr", True)
        self.array(b"i4", [len(indptr)], indptr)
        self.string(b"_cs_matrix__has_sorted_indices", True)
        self.out += b"\x88"
        self.string(b"indices", True)
        self.array(b"i4", [len(indices)], indices)
        self.string(b"maxprint", True)
        self.integer(50)
        self.string(b"data", True)
        self.array(b"f4", [len(data)], data)
        self.out += b"ub"

    def graph(self, lists):
        self.shared(b"collections defaultdict")
        self.shared(b"__builtin__ list")
        self.out += b"\x85R"
        self.put()
        self.out += b"("
        for node, neighbours in lists.items():
            self.integer(node)
            self.out += b"]"
            self.put()
            if len(neighbours) == 1:
                self.integer(neighbours[0])
                self.out += b"a"
            elif neighbours:
                self.out += b"("
                for other in neighbours:
                    self.integer(other)
                self.out += b"e"
        self.out += b"u"

    def save(self, part):
        with open("ind.tiny." + part, "wb") as file:
            file.write(self.out + b".")


def features(node):
    # Node 5 has no words; the others have two, with values that are not all one.
    return [0.0] * F if node == 5 else [(1.0 + node / 4) * (j in (node % F, (node + 2) % F)) for j in range(F)]


def one_hot(nodes):
    return [int(node % C == c) for node in nodes for c in range(C)]


def main():
    parts = {"x": range(3), "allx": range(9), "tx": [12, 9, 13, 10]}
    for part, nodes in parts.items():
        pickler = Pickler()
        pickler.csr([features(node) for node in nodes])
        pickler.save(part)
        pickler = Pickler()
        pickler.array(b"i4", [len(nodes), C], one_hot(nodes))
        pickler.save(part.replace("x", "y"))
    lists = {node: [] for node in range(14)}
    for u, v in EDGES:
        lists[u].append(v)
        lists[v].append(u)
    lists[0].append(1)
    lists[5] += [6, 6]
    lists[3].append(3)
    lists[9].append(9)
    pickler = Pickler()
    pickler.graph(lists)
    pickler.save("graph")
    with open("ind.tiny.test.index", "w") as file:
        file.write("12\n9\n13\n10\n")


main()
