"""The data pipeline: what a sensor has done, and what it would have done, computed by Spark over all of its records.

=========== ===========================================================================================================
`session`   a Spark that runs here, or wherever `spark-submit` has put us
`records`   topics and archives as tables of records, and what of them is not there any more
`archive`   an archive on disk: what lies where, and how far it reaches
`archiving` topics become an archive
`facts`     what our own records say, as columns
`workers`   the sensor's own core, inside Spark's Python workers
`report`    what an audit has found; `words` say what it comes to, `htmlreport` shows it on a page
`backtest`  what a sensor would have done; `comparison`: what two versions of it would have done differently
=========== ===========================================================================================================

Spark SQL does what can be said in SQL; Python sees a record only where the sensor's core has to judge it. Nothing that
grows with the data is ever collected, and a worker holds no more than a batch and what the sensor itself would hold.
"""
