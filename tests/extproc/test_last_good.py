from meshcache.extproc.last_good import LastGood, LastGoodFile


def test_what_was_saved_last_is_loaded(tmp_path):
    file = LastGoodFile(tmp_path / "policies.last-good")
    assert file.load() is None
    file.save(LastGood(1, "a", (("x.yaml", "1"),)))
    file.save(LastGood(2, "b", (("x.yaml", "ü"),)))
    assert file.load() == LastGood(2, "b", (("x.yaml", "ü"),))
    assert [path.name for path in tmp_path.iterdir()] == ["policies.last-good"]


def test_a_file_that_is_cut_short_or_garbage_counts_as_absent(tmp_path):
    path = tmp_path / "policies.last-good"
    LastGoodFile(path).save(LastGood(1, "a", (("x.yaml", "1"),)))
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert LastGoodFile(path).load() is None
    path.write_bytes(b"\xff" * 50)
    assert LastGoodFile(path).load() is None
    path.unlink()
    path.mkdir()
    assert LastGoodFile(path).load() is None
